"""One rank of a Job: reads [function, arguments] lines, writes {"returned"} or {"raised"} lines."""

import json
import sys
import traceback

import paceline
import rank_side

answers = sys.stdout
sys.stdout = sys.stderr  # what the functions print must not mix with the answers
comm = paceline.init()
for line in sys.stdin:
    function, arguments = json.loads(line)
    try:
        answer = {"returned": getattr(rank_side, function)(comm, **arguments)}
    except Exception:
        answer = {"raised": traceback.format_exc()}
    print(json.dumps(answer), file=answers, flush=True)
comm.close()
