"""OpenVINO running the ONNX file that `impls/onnx_direct` writes, in float32 or in the precision that it chooses."""

from encoder_conformance import Environment, serve
from encoder_conformance.impls.onnx_direct.adapter import OnnxDirect

RUNTIMES = {"f32": "openvino", "default": "openvino_itself"}


class OpenVinoCpu(OnnxDirect):
    def start(self, device: str, threads: int) -> Environment:
        import openvino

        asked = self.choices["precision"]
        self.choices = {"opset": "20", "level": "all", "runtime": RUNTIMES[asked]}
        found = super().start(device, threads)
        chosen = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT")
        precision = "f32" if asked == "f32" else chosen.get_type_name()
        settings: dict[str, str | int | bool] = {"threads": threads, "precision": asked, "computes_in": precision}
        return Environment(found.versions, settings)


if __name__ == "__main__":
    serve(OpenVinoCpu())
