#!/bin/sh
# Forms the 3+3 cluster out of six running nodes, always in the same shape:
# the first three are primaries with a third of the slots each, and node n+3 replicates node n.
#
#   create.sh HOST:PORT HOST:PORT HOST:PORT HOST:PORT HOST:PORT HOST:PORT
#
# Safe to run again at any time: what is done already is left alone, what is missing is added, and nodes whose addresses
# have changed are introduced to each other again. After a failover the roles within a pair stay as they are.
# It returns once every node says so: all slots served, all six nodes listed and linked, every replica in step.
#
#   REDISCLI_AUTH           password of the nodes, where they have one
#   REDIS_CLI               redis-cli or valkey-cli to use; default: the one on PATH
#   CLUSTER_WAIT_SECONDS    how long to wait for the nodes, then for the cluster; default 30 each
set -eu

fail() {
    echo "create.sh: $*" >&2
    exit 1
}

if [ $# -ne 6 ]; then
    echo "usage: create.sh HOST:PORT (six of them: three primaries, then their replicas)" >&2
    exit 64
fi

wait_seconds=${CLUSTER_WAIT_SECONDS:-30}
cli=${REDIS_CLI:-}
if [ -z "$cli" ]; then
    cli=$(command -v redis-cli || command -v valkey-cli) || fail "neither redis-cli nor valkey-cli is on PATH"
fi
if [ -n "${REDISCLI_AUTH:-}" ]; then
    export REDISCLI_AUTH
    export VALKEYCLI_AUTH="$REDISCLI_AUTH"
fi

# One command on one node. `-e` because redis-cli otherwise exits 0 on an error reply; without a terminal it prints raw replies.
node() {
    address=$1
    shift
    "$cli" -e -h "${address%:*}" -p "${address##*:}" "$@" 2>&1
}

# The same where a refusal means that the cluster cannot be formed.
must() {
    reply=$(node "$@") || {
        address=$1
        shift
        fail "$address refused $*: $reply"
    }
}

# CLUSTER MEET takes addresses only, so names are resolved here.
address_of() {
    case $1 in
        localhost) echo 127.0.0.1 ;;
        *[!0-9.]*) getent hosts "$1" | awk '{ print $1; exit }' ;;
        *) echo "$1" ;;
    esac
}

# Everything one has to know about a node, in one connection.
facts() {
    printf 'CLUSTER MYID\nCLUSTER INFO\nCLUSTER NODES\nINFO replication\n' |
        "$cli" -h "${1%:*}" -p "${1##*:}" 2>&1 | tr -d '\r'
}

# Prints the first thing that node $1 still misses, nothing when it is content. $2: the ids of the six nodes.
missing() {
    facts "$1" | awk -v ids="$2" '
        $1 ~ /^[0-9a-f]+$/ && length($1) == 40 && NF > 7 {
            flags[$1] = $3; link[$1] = $8
            if ($3 ~ /slave/) replicas++
        }
        /^cluster_state:/ { state = substr($0, 15) }
        /^cluster_slots_ok:/ { slots = substr($0, 18) }
        /^role:/ { role = substr($0, 6) }
        /^master_link_status:/ { primary_link = substr($0, 20) }
        /^master_sync_in_progress:/ { copying = substr($0, 25) }
        /^slave[0-9]+:/ && /state=online/ { online++ }
        function say(what) { if (!said) print what; said = 1 }
        END {
            count = split(ids, id, " ")
            if (state == "") say("does not answer as a cluster node")
            for (i = 1; i <= count; i++) {
                if (!(id[i] in flags)) say("does not list node " id[i])
                else if (flags[id[i]] ~ /fail|handshake|noaddr/) say("lists node " id[i] " as " flags[id[i]])
                else if (link[id[i]] != "connected") say("has no link to node " id[i])
            }
            if (replicas < 3) say("lists " (replicas + 0) " replicas instead of 3")
            if (slots != 16384) say("knows owners of " (slots + 0) " slots instead of 16384")
            if (state != "ok") say("has cluster_state:" state)
            if (role == "slave" && primary_link != "up") say("is not linked to its primary")
            if (role == "slave" && copying != 0) say("is still copying from its primary")
            if (role == "master" && online < 1) say("has no replica in step")
        }'
}

# Sets `unmet` to the first thing that any node misses, empty when the cluster is whole.
look() {
    unmet=
    for address in $nodes; do
        what=$(missing "$address" "$ids")
        if [ -n "$what" ]; then
            unmet="$address $what"
            return
        fi
    done
}

now() { date +%s; }

has_slots() {
    must "$1" CLUSTER NODES
    echo "$reply" | awk '$3 ~ /myself/ { found = NF > 8 } END { exit !found }'
}

is_replica() {
    must "$1" CLUSTER NODES
    echo "$reply" | awk '$3 ~ /myself/ { found = $3 ~ /slave/ } END { exit !found }'
}

# A node knows another once it lists it under its real id and no longer as a stranger it is shaking hands with.
knows() {
    must "$1" CLUSTER NODES
    echo "$reply" | awk -v id="$2" '$1 == id { found = $3 !~ /handshake/ } END { exit !found }'
}

id_of() {
    must "$1" CLUSTER MYID
    echo "$reply"
}

nodes="$*"

# 1. All six answer.
deadline=$(($(now) + wait_seconds))
ids=
for address in $nodes; do
    while :; do
        answered=yes
        reply=$(node "$address" CLUSTER MYID) || answered=no
        case $reply in
            *"cluster support disabled"*) fail "$address is not a cluster node: cluster-enabled is off" ;;
            *NOAUTH*) fail "$address asks for a password: set REDISCLI_AUTH" ;;
            # redis-cli goes on without a password where the one it has is refused.
            *"AUTH failed"* | *WRONGPASS*) fail "$address refuses the password in REDISCLI_AUTH" ;;
        esac
        if [ $answered = yes ]; then break; fi
        [ "$(now)" -lt "$deadline" ] || fail "$address did not answer within $wait_seconds s: $reply"
        sleep 0.05
    done
    ids="$ids $reply"
done

look
if [ -z "$unmet" ]; then
    echo "cluster already formed: $nodes"
    exit 0
fi

# 2. Slots and epochs, before the nodes know each other: no two claims can then collide. A pair of which one node has slots
#    keeps them where they are.
range() {
    case $1 in
        1) echo "0 5460" ;;
        2) echo "5461 10922" ;;
        3) echo "10923 16383" ;;
    esac
}

primary_of() { echo "$nodes" | cut -d ' ' -f "$1"; }
replica_of() { echo "$nodes" | cut -d ' ' -f "$(($1 + 3))"; }

for pair in 1 2 3; do
    primary=$(primary_of $pair)
    replica=$(replica_of $pair)
    if ! has_slots "$primary" && ! has_slots "$replica" && ! is_replica "$primary"; then
        # shellcheck disable=SC2046 # two words, on purpose
        must "$primary" CLUSTER ADDSLOTSRANGE $(range $pair)
        must "$primary" CLUSTER INFO
        if echo "$reply" | grep -q '^cluster_known_nodes:1[^0-9]*$' && echo "$reply" | grep -q '^cluster_my_epoch:0[^0-9]*$'; then
            must "$primary" CLUSTER SET-CONFIG-EPOCH $pair
        fi
    fi
done

# 3. Everybody meets everybody. Gossip would get there from fewer introductions, but later.
met=
for address in $nodes; do
    for earlier in $met; do
        host=$(address_of "${earlier%:*}")
        [ -n "$host" ] || fail "no address found for ${earlier%:*}"
        must "$address" CLUSTER MEET "$host" "${earlier##*:}"
    done
    met="$met $address"
done

# 4. Replicas, as soon as they know their primary.
for pair in 1 2 3; do
    primary=$(primary_of $pair)
    replica=$(replica_of $pair)
    if is_replica "$primary" || is_replica "$replica"; then
        continue
    fi
    # A node that lost its folder comes back empty, and follows the one that took over from it.
    if ! has_slots "$primary"; then
        follower=$primary
        leader=$replica
    else
        follower=$replica
        leader=$primary
    fi
    leader_id=$(id_of "$leader")
    deadline=$(($(now) + wait_seconds))
    until knows "$follower" "$leader_id"; do
        [ "$(now)" -lt "$deadline" ] || fail "$follower did not come to know $leader within $wait_seconds s"
        sleep 0.02
    done
    must "$follower" CLUSTER REPLICATE "$leader_id"
done

# 5. Until every node agrees.
deadline=$(($(now) + wait_seconds))
look
while [ -n "$unmet" ]; do
    [ "$(now)" -lt "$deadline" ] || fail "not formed within $wait_seconds s: $unmet"
    sleep 0.05
    look
done
echo "cluster formed: $nodes"
