"""Keys at their plain choice: left out of what is written of a model, and shown where the whole is asked for (L-6)."""

from typing import Any

from pydantic import BaseModel, Field


def plain(choice: object, description: str) -> Any:
    """The field of a key that came later, which nothing that is written of a model has at `choice`.

    `choice` is what everything did that was made before the key. So a new key changes no digest, no manifest and no
    request to an adapter. Example: `kv_heads: PositiveInt | None = plain(None, "of keys and values; null: num_heads")`.
    """
    return Field(default=choice, description=description, exclude_if=lambda value: bool(value == choice))


def whole(model: BaseModel) -> dict[str, Any]:
    """Key → value of every key of a model, nested as the model is; those at their plain choice too."""
    values = {name: getattr(model, name) for name in type(model).model_fields}
    return {name: whole(value) if isinstance(value, BaseModel) else value for name, value in values.items()}
