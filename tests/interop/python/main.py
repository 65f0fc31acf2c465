"""The librdkafka half of the interop suite (through confluent-kafka).

Prints `CASE<tab>name<tab>ok|fail<tab>detail` for each case.
"""

import sys

import admin
import crash_transactions
import data
import drain
import everyday
import groups
import load
import login
import member
import push
import quota
import records
import secured
import secured_pure
import transactions
from suite import Suite


def main() -> int:
    phase, bootstrap, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    if phase == "load":
        load.run(bootstrap, rest[0])
        return 0
    suite = Suite(bootstrap)
    if phase == "write":
        records.write_all(suite)
    elif phase == "read":
        records.read_all(suite, rest)
    elif phase == "cases":
        data.run(suite)
        admin.run(suite)
        groups.run(suite)
    elif phase == "drain":
        suite.run(phase, lambda suite: drain.drain(suite, rest))
    elif phase == "push":
        suite.run(phase, lambda suite: push.push(suite, int(rest[0])))
    elif phase == "login":
        login.run(suite, *rest)
    elif phase == "secured":
        secured.run(suite, rest[0])
    elif phase == "secured-pure":
        secured_pure.run(suite, rest[0])
    elif phase == "transactions":
        transactions.run(suite)
    elif phase == "crash-transactions":
        crash_transactions.load(suite, rest[0], int(rest[1]), rest[2])
    elif phase == "consumer-protocol":
        groups.run_consumer_protocol(suite)
    elif phase == "member":
        member.run(suite, rest[0], rest[1:])
    elif phase == "everyday":
        everyday.run(suite, rest[0])
    elif phase == "quota":
        quota.run(suite, *rest)
    else:
        print(f"unknown phase {phase}", file=sys.stderr)
        return 2
    return 1 if suite.failures else 0


if __name__ == "__main__":
    sys.exit(main())
