"""Writes the reference pages that are made from the code: `make docs`."""

from __future__ import annotations

from pathlib import Path

from yukta_rx import metrics
from yukta_rx.config import document
from yukta_rx.http.document import reference_page as rest_page

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write every page and say which."""
    pages = {
        "docs/reference/configuration.md": document.configuration_page(),
        "yukta.example.toml": document.example_toml(),
        "docs/reference/metrics.md": metrics.reference_page(),
        "docs/reference/rest.md": rest_page(),
    }
    for name, text in pages.items():
        (ROOT / name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
