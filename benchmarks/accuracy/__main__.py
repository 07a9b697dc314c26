"""python -m benchmarks.accuracy [--records]: ours beside every public record, by kind; with --records each of them.

Run it after any change of a formula: it writes pages/evidence/accuracy.json and the table in both READMEs.
"""

import argparse

from benchmarks.accuracy.evidence import evidence, write
from pages.parts.verify.evidence import summaries


def main() -> None:
    parser = argparse.ArgumentParser(description="Our figures beside every public record.")
    parser.add_argument("--records", action="store_true", help="print each record too")
    whole = evidence()
    if parser.parse_args().records:
        for row in whole.rows:
            figures = f"{row.predicted:>18,}{row.measured:>18,} {row.unit:7}{row.error:>+8.2%}"
            print(f"{row.kind:32}{row.name[:60]:62}{figures}")
    print(f"{'kind':32}{'records':>8}{'median':>9}{'p95':>9}{'worst':>9}")
    for kind in summaries(whole):
        print(f"{kind.kind:32}{kind.records:>8}{kind.median:>9.2%}{kind.p95:>9.2%}{kind.worst:>9.2%}")
    for out in sorted(whole.left_out, key=lambda out: -out.count):
        print(f"left out: {out.count:>3} of {out.kind}: {out.reason}")
    write(whole)


main()
