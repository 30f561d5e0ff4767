"""Make tables of GPU collectives that were measured a part of the library.

    paceline tune --device cuda -n 2,4 --output measured.json     # on a machine with such GPUs
    python tools/ship_gpu_tables.py measured.json                 # in the tree; then build

The tables of the same GPU, link, number of ranks and blocks (PACELINE_GPU_BLOCKS) are replaced, others stay.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).resolve().parents[1] / "src" / "tuning" / "gpu_tables.json"


def key(setting: dict[str, Any]) -> tuple[str, str, int, int]:
    return setting["gpu"], setting["link"], setting["ranks"], setting["blocks"]


def text(settings: list[dict[str, Any]]) -> str:
    """One line a row, so that a change shows as what it is."""
    parts = []
    for setting in settings:
        rows = ",\n".join(f"  {json.dumps(row)}" for row in setting["table"])
        gpu, link, ranks, blocks = key(setting)
        machine = f'"gpu": {json.dumps(gpu)}, "link": {json.dumps(link)}, "ranks": {ranks}, "blocks": {blocks}'
        parts.append(f'{{{machine}, "table": [\n{rows}\n]}}')
    return '{"gpus": [' + ",\n".join(parts) + "]}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", nargs="+", type=Path, help="what `paceline tune --device cuda` has written")
    parser.add_argument("--into", type=Path, default=SHIPPED, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    settings = {key(setting): setting for setting in json.loads(chosen.into.read_text())["gpus"]}
    for profile in chosen.profiles:
        for setting in json.loads(profile.read_text())["gpus"]:
            if not setting["link"]:
                parser.error(f"{profile}: the link between the GPUs could not be told: let every rank see all of them")
            settings[key(setting)] = setting
            print(f"{setting['ranks']} x {setting['gpu']}, {setting['link']}: {len(setting['table'])} rows")
    chosen.into.write_text(text([settings[one] for one in sorted(settings)]))


if __name__ == "__main__":
    main()
