"""The work of heyday's worker, done with redis-py: a consumer group, one task a stream, pipelines on a Redis Cluster."""

import asyncio
import datetime
import json
import os
import resource
import sys
import time

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import ResponseError

GROUP = "peers"
CONSUMER = "peer"
# Without progress for this long the peer gives up.
STALL_SECONDS_MAX = 120
# How long one read waits for entries.
BLOCK_MILLISECONDS = 1000
# A connection for the blocking read of each stream and one for its writes.
CONNECTIONS_A_STREAM = 2


class Window:
    """The days whose day keys are kept, by the month and the day that a date celebrates."""

    def __init__(self, first, last):
        day = datetime.date.fromisoformat(first)
        last = datetime.date.fromisoformat(last)
        self.days = {}
        while day <= last:
            midnight = int(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.timezone.utc).timestamp())
            name = day.isoformat().encode()
            self.days[name[5:]] = (name, midnight + 9 * 3600, midnight + (24 + 25 + 12) * 3600)
            day += datetime.timedelta(days=1)

    def day(self, date):
        """The day in the window on which the date is celebrated: its name, when it is due, when its key ends."""
        return self.days.get(date[-5:]) if date else None


class Shard:
    def __init__(self, cluster, settings, tag):
        self.cluster = cluster
        self.batch = settings["batch"]
        self.window = settings["window"]
        self.progress = settings["progress"]
        prefix = settings["prefix"].encode()
        tag = b"{%s}" % tag.encode()
        self.stream = b"%schanges:%s" % (prefix, tag)
        self.users = b"%susers:%s" % (prefix, tag)
        self.user_before = b"%suser:%s:" % (prefix, tag)
        self.day_before = b"%sbirthdays:%s:" % (prefix, tag)
        self.left = 0

    async def make_group(self):
        try:
            await self.cluster.xgroup_destroy(self.stream, GROUP)
        except ResponseError:
            pass  # there is no stream yet
        await self.cluster.xgroup_create(self.stream, GROUP, id="0", mkstream=True)
        self.left = await self.cluster.xlen(self.stream)

    async def consume(self):
        while self.left > 0:
            reply = await self.cluster.xreadgroup(
                GROUP, CONSUMER, {self.stream: ">"}, count=self.batch, block=BLOCK_MILLISECONDS
            )
            entries = entries_of(reply, self.stream)
            if not entries:
                continue
            await self.apply(entries)
            await self.cluster.xack(self.stream, GROUP, *[identifier for identifier, _ in entries])
            self.left -= len(entries)
            self.progress.add(len(entries))

    async def apply(self, entries):
        # The last date of a friendship within the batch counts.
        views = {}
        for _, fields in entries:
            views.setdefault(fields[b"user"], {})[fields[b"friend"]] = fields[b"birthday"]
        keys = {user: self.user_before + user + b":birthdays" for user in views}

        pipeline = self.cluster.pipeline(transaction=False)
        for user, dates in views.items():
            pipeline.hmget(keys[user], list(dates))
        before = await pipeline.execute()

        gone, come = self.day_changes(views, before)
        pipeline = self.cluster.pipeline(transaction=False)
        for user, dates in views.items():
            pipeline.hset(keys[user], mapping=dates)
        pipeline.zadd(self.users, dict.fromkeys(views, 0))
        for day, members in gone.items():
            pipeline.zrem(self.day_before + day, *members)
        for (day, due, end), members in come.items():
            pipeline.zadd(self.day_before + day, dict.fromkeys(members, due))
            pipeline.expireat(self.day_before + day, end)
        await pipeline.execute()

    def day_changes(self, views, before):
        gone, come = {}, {}
        for (user, dates), old_dates in zip(views.items(), before):
            for (friend, date), old_date in zip(dates.items(), old_dates):
                old, new = self.window.day(old_date), self.window.day(date)
                member = user + b":" + friend
                if old is not None and old is not new:
                    gone.setdefault(old[0], []).append(member)
                if new is not None:
                    come.setdefault(new, []).append(member)
        return gone, come


class Progress:
    """How much is done, and the bound on standing still."""

    def __init__(self):
        self.changes = 0
        self.moved = time.monotonic()

    def add(self, changes):
        self.changes += changes
        self.moved = time.monotonic()

    async def watch(self):
        while time.monotonic() - self.moved < STALL_SECONDS_MAX:
            await asyncio.sleep(1)
        raise TimeoutError(f"no progress for {STALL_SECONDS_MAX} s after {self.changes} changes")


def entries_of(reply, stream):
    """The entries of one stream, whether the reply is a map (RESP3) or a list of pairs (RESP2)."""
    streams = reply.items() if isinstance(reply, dict) else reply or []
    for name, entries in streams:
        if name == stream:
            # redis-py puts a list of lists of entries into a map.
            return entries[0] if isinstance(reply, dict) and entries and isinstance(entries[0], list) else entries
    return []


def settings():
    tags = os.environ["PEER_TAGS"].split(",")
    return {
        "nodes": [node.rsplit(":", 1) for node in os.environ["PEER_NODES"].split(",")],
        "password": os.environ.get("PEER_PASSWORD") or None,
        "prefix": os.environ.get("PEER_PREFIX", ""),
        "tags": tags,
        "changes": int(os.environ["PEER_CHANGES"]),
        "batch": int(os.environ["PEER_BATCH"]),
        "window": Window(os.environ["PEER_FIRST"], os.environ["PEER_LAST"]),
        "progress": Progress(),
    }


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def wait_for_go():
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if line.strip() != "go":
        raise RuntimeError("no `go` on stdin")


async def bounded(progress, work):
    """Ends with the work, or with an error where it stands still."""
    watch, tasks = asyncio.ensure_future(progress.watch()), asyncio.ensure_future(work)
    done, _ = await asyncio.wait({watch, tasks}, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    watch.cancel()


async def main():
    options = settings()
    nodes = [ClusterNode(host, int(port)) for host, port in options["nodes"]]
    cluster = RedisCluster(
        startup_nodes=nodes,
        password=options["password"],
        max_connections=CONNECTIONS_A_STREAM * len(options["tags"]) + 1,
    )
    async with cluster:
        shards = [Shard(cluster, options, tag) for tag in options["tags"]]
        await asyncio.gather(*[shard.make_group() for shard in shards])
        found = sum(shard.left for shard in shards)
        if found != options["changes"]:
            raise RuntimeError(f"the streams hold {found} entries, not {options['changes']}")
        print("ready", flush=True)
        await wait_for_go()

        progress = options["progress"]
        progress.add(0)
        began, cpu_began = time.monotonic(), cpu_seconds()
        await bounded(progress, asyncio.gather(*[shard.consume() for shard in shards]))
        seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu_began
    print(json.dumps({"changes": progress.changes, "seconds": seconds, "cpu_seconds": cpu}), flush=True)


try:
    asyncio.run(main())
except Exception as error:
    print(f"redis-py: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    # A thread that still waits for stdin must not hold the process.
    os._exit(1)
