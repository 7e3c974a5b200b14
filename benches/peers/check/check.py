"""Appends a load for the peers, and compares what they made of it with the streams. benches/peers/README.md says how to call it."""

import argparse
import datetime
import os
import random
import sys

from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

SLOTS = 16384
PIPELINE = 1000
# Day keys end 25 hours and 12 hours after the end of their day; they are due at 9.
DUE_SECONDS = 9 * 3600
END_SECONDS = (24 + 25 + 12) * 3600


def tags(shards):
    """The tag of each shard: its number and the least k that puts it into the middle half of its slots."""
    width = SLOTS // shards
    found = []
    for shard in range(shards):
        first = shard * width + width // 4
        k = 0
        while not first <= key_slot(f"{shard}.{k}".encode()) < first + width // 2:
            k += 1
        found.append(f"{shard}.{k}")
    return found


def connect():
    nodes = [ClusterNode(*node.rsplit(":", 1)) for node in os.environ["PEER_NODES"].split(",")]
    return RedisCluster(startup_nodes=nodes, password=os.environ.get("PEER_PASSWORD") or None, decode_responses=True)


def load(arguments):
    """Entries in bursts of the same user, so many a user; every tenth names a friend again that the user has already."""
    cluster, draw = connect(), random.Random(arguments.seed)
    shard_tags = tags(arguments.shards)
    prefix = os.environ.get("PEER_PREFIX", "")
    friends = {}
    user = None
    pipeline, queued = cluster.pipeline(), 0
    for number in range(arguments.changes):
        if number % arguments.changes_a_user == 0:
            user = f"u{draw.randrange(arguments.users)}"
        known = friends.setdefault(user, [])
        if known and draw.random() < 0.1:
            friend = draw.choice(known)
        else:
            friend = f"f{draw.randrange(10**9)}"
            known.append(friend)
        date = datetime.date(1990, 1, 1) + datetime.timedelta(days=draw.randrange(365))
        tag = shard_tags[key_slot(user.encode()) * arguments.shards // SLOTS]
        pipeline.xadd(f"{prefix}changes:{{{tag}}}", {"type": "add", "user": user, "friend": friend, "birthday": date.isoformat()})
        queued += 1
        if queued == PIPELINE:
            pipeline.execute()
            queued = 0
    pipeline.execute()
    print(",".join(shard_tags))


def verify(_arguments):
    """Everything that the peers write, of every shard, against a plain replay of its stream."""
    cluster = connect()
    prefix = os.environ.get("PEER_PREFIX", "")
    window = {}
    day, last = (datetime.date.fromisoformat(os.environ[name]) for name in ("PEER_FIRST", "PEER_LAST"))
    while day <= last:
        window[(day.month, day.day)] = day
        day += datetime.timedelta(days=1)
    wrong, entries = [], 0
    for tag in os.environ["PEER_TAGS"].split(","):
        views = {}
        for _, fields in cluster.xrange(f"{prefix}changes:{{{tag}}}"):
            views.setdefault(fields["user"], {})[fields["friend"]] = fields["birthday"]
            entries += 1
        days = {day: {} for day in window.values()}
        for user, dates in views.items():
            for friend, date in dates.items():
                born = datetime.date.fromisoformat(date)
                celebrated = window.get((born.month, born.day))
                if celebrated:
                    days[celebrated][f"{user}:{friend}"] = midnight(celebrated) + DUE_SECONDS
        wrong += compare(cluster, prefix, tag, views, days)
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    print(f"{entries} entries, {len(wrong)} wrong")
    return 1 if wrong else 0


def compare(cluster, prefix, tag, views, days):
    wrong = []

    def expect(key, wanted, found):
        if wanted != found:
            missing = sum(1 for member in wanted if member not in found)
            surplus = sum(1 for member in found if member not in wanted)
            other = sum(1 for member in wanted if member in found and wanted[member] != found[member])
            wrong.append(f"{key}: {missing} missing, {surplus} too many, {other} other than they should be")

    users = list(views)
    for begin in range(0, len(users), PIPELINE):
        pipeline = cluster.pipeline()
        some = users[begin : begin + PIPELINE]
        for user in some:
            pipeline.hgetall(f"{prefix}user:{{{tag}}}:{user}:birthdays")
        for user, found in zip(some, pipeline.execute()):
            expect(f"user:{user}", views[user], found)
    expect(f"users:{tag}", dict.fromkeys(views, 0.0), dict(cluster.zrange(f"{prefix}users:{{{tag}}}", 0, -1, withscores=True)))
    for day, wanted in days.items():
        key = f"{prefix}birthdays:{{{tag}}}:{day.isoformat()}"
        expect(key, {member: float(due) for member, due in wanted.items()}, dict(cluster.zrange(key, 0, -1, withscores=True)))
        if wanted and cluster.expiretime(key) != midnight(day) + END_SECONDS:
            wrong.append(f"{key}: ends at {cluster.expiretime(key)}, not {midnight(day) + END_SECONDS}")
    pending = cluster.xinfo_groups(f"{prefix}changes:{{{tag}}}") if cluster.exists(f"{prefix}changes:{{{tag}}}") else []
    for group in pending:
        if group["pending"]:
            wrong.append(f"changes:{tag}: {group['pending']} entries pending in group {group['name']}")
    return wrong


def midnight(day):
    return int(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.timezone.utc).timestamp())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    loading = commands.add_parser("load", help="append a load; prints the tags of the shards")
    loading.add_argument("--shards", type=int, default=16)
    loading.add_argument("--changes", type=int, default=100_000)
    loading.add_argument("--users", type=int, default=100_000)
    loading.add_argument("--changes-a-user", type=int, default=1)
    loading.add_argument("--seed", type=int, default=1)
    loading.set_defaults(run=load)
    commands.add_parser("verify", help="compare all views with the streams").set_defaults(run=verify)
    arguments = parser.parse_args()
    return arguments.run(arguments) or 0


sys.exit(main())
