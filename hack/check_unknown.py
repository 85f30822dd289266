"""Fails where `x or NUMBER` would turn an unknown, or a measured 0, into a default."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def falsy_defaults(path: Path) -> list[str]:
    """Places in a file where the last operand of an `or` is a number."""
    places = []
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.BoolOp) and isinstance(item.op, ast.Or):
            last = item.values[-1]
            number = isinstance(last, ast.Constant) and type(last.value) in (int, float)
            if number:
                places.append(
                    f"{path.relative_to(ROOT)}:{item.lineno}: `or {ast.unparse(last)}`: write `if x is not None`"
                )
    return places


def main() -> int:
    """Look at the whole package."""
    places = [place for path in sorted((ROOT / "pharos").rglob("*.py")) for place in falsy_defaults(path)]
    print("\n".join(places))
    return 1 if places else 0


if __name__ == "__main__":
    sys.exit(main())
