# shellcheck shell=bash disable=SC2154 # `program` is set by the script that reads this file
# What cluster/up and cluster/down share: the folder of a cluster and its processes.
#
# A folder holds one cluster: `port-base`, and for each node 1 to 6 a folder with its own redis.conf, redis.pid, redis.log and data.

fail() {
    echo "$program: $*" >&2
    exit 1
}

usage_error() {
    echo "$program: $*; see $program --help" >&2
    exit 64
}

# The command line of process $1; from /proc where there is one, since small systems lack ps.
command_line() {
    if [ -d /proc/self ]; then
        tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline"
    else
        ps -o args= -p "$1" 2>/dev/null
    fi
}

# Prints the process id of node $2 of folder $1 and succeeds, if it runs. A number left behind by a dead server may belong to
# somebody else by now, so the process must also call itself a cluster node on a loopback port.
running() {
    local file="$1/$2/redis.pid" id
    [ -s "$file" ] || return 1
    id=$(cat "$file")
    command_line "$id" | grep -Eq '(redis|valkey)-server 127\.0\.0\.1:[0-9]+ \[cluster\]' || return 1
    echo "$id"
}
