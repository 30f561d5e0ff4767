"""One rank of a Job: reads [function, arguments] lines, writes {"returned"} or {"raised"} lines."""

import json
import sys
import traceback

import collectives_side
import errors_side
import handles_side
import paceline
import plans_side

FUNCTIONS = vars(collectives_side) | vars(handles_side) | vars(plans_side) | vars(errors_side)

answers = sys.stdout
sys.stdout = sys.stderr  # what the functions print must not mix with the answers
comm = paceline.init()
for line in sys.stdin:
    function, arguments = json.loads(line)
    try:
        answer = {"returned": FUNCTIONS[function](comm, **arguments)}
    except Exception:
        answer = {"raised": traceback.format_exc()}
    print(json.dumps(answer), file=answers, flush=True)
comm.close()
