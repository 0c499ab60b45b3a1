"""ONNX Runtime's own profile of a session, its nodes counted to the stages that they lead to."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

KERNEL = "_kernel_time"


class Timing:
    """Sets `options` so that a session made with them profiles its nodes and leaves the graph that it really runs."""

    def __init__(self, folder: Path, options: ort.SessionOptions) -> None:
        self.options, self.graph_file = options, folder / "optimised.onnx"
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        options.optimized_model_filepath = str(self.graph_file)
        options.log_severity_level = 3  # it warns that a graph optimised for this processor is only for this one

    def by_stage(self, profile: str, repeats: int) -> dict[str, np.ndarray]:
        """Stage → seconds [repeats]: the sum of its nodes' kernel times in each run, the first run left out."""
        runs = defaultdict(list)
        for event in json.loads(Path(profile).read_text()):
            if event["cat"] == "Node" and event["name"].endswith(KERNEL):
                runs[event["name"].removesuffix(KERNEL)].append(event["dur"] * 1e-6)
        graph = onnx.load(self.graph_file, load_external_data=False).graph
        stages = leading_to(graph)
        seconds = {output.name: np.zeros(repeats) for output in graph.output}
        for node, found in runs.items():
            seconds[stages[node]] += found[1:]
        return seconds


def leading_to(graph: onnx.GraphProto) -> dict[str, str]:
    """Node → the first of the graph's outputs, in their order, that cannot be had without it."""
    makers = {output: node for node in graph.node for output in node.output}
    stages: dict[str, str] = {}
    for output in graph.output:
        waiting = [output.name]
        while waiting:
            node = makers.get(waiting.pop())
            if node is not None and node.name not in stages:
                stages[node.name] = output.name
                waiting += node.input
    return stages
