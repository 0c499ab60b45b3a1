"""Answers the questions of `conform ask --layer post-relu --dtype float32`."""

import numpy as np
from safetensors.numpy import load_file, save_file

asked = load_file("asked.safetensors")
answers = {"asked": asked["asked"]}


def norm(x, p, name):
    centred = x - x.mean(-1, keepdims=True)
    root = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
    return centred / root * p[f"{name}.gain"] + p[f"{name}.shift"]


def linear(x, p, name):
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


for question in [name.removesuffix("/x") for name in asked if name.endswith("/x")]:
    prefix = question.split("/")[0] + "/parameters/"
    p = {name.removeprefix(prefix): value for name, value in asked.items() if name.startswith(prefix)}
    x, mask, bias = asked[f"{question}/x"], asked[f"{question}/mask"], asked.get(f"{question}/bias", np.float32(0))
    B, H, S, T = mask.shape
    q, k, v = (linear(x, p, f"attention.{name}") for name in ("query", "key", "value"))
    q, k, v = (y.reshape(B, S, H, -1).swapaxes(1, 2) for y in (q, k, v))
    scores = np.where(mask, q @ k.swapaxes(2, 3) / np.sqrt(np.float32(q.shape[-1])) + bias, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    context = weights / weights.sum(-1, keepdims=True) @ v
    x = norm(x + linear(context.swapaxes(1, 2).reshape(x.shape), p, "attention.output"), p, "norm1")
    hidden = np.maximum(linear(x, p, "feed_forward.hidden"), 0)
    answers[f"{question}/output"] = norm(x + linear(hidden, p, "feed_forward.output"), p, "norm2")
save_file(answers, "answers.safetensors")
