#!lua flags=no-writes
-- KEYS  1 changes  2 state  3 dead letters  4 outbox
-- ARGV  1 group
-- Answers {unread, pending, age of the oldest entry after the applied position (ms) or false, dead letters, outbox,
-- server time (ms), whether a roll is asked for (0 or 1), whether there is a state (0 or 1), how many entries the stream has had up
-- to the applied position, where that is all of them, or false}.

-- Where Redis cannot tell how many entries are unread, as many are counted; of more, all the stream holds pass for unread.
local COUNTED_MAX = 100

local delivered, pending, lag
if redis.call('EXISTS', KEYS[1]) == 1 then
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
        local fields = {}
        for at = 1, #group, 2 do
            fields[group[at]] = group[at + 1]
        end
        if fields['name'] == ARGV[1] then
            delivered, pending, lag = fields['last-delivered-id'], fields['pending'], fields['lag']
        end
    end
end
if not delivered then
    return redis.error_reply('NOGROUP No such key ' .. KEYS[1] .. ' or consumer group ' .. ARGV[1])
end

local function after(id, count)
    return redis.call('XRANGE', KEYS[1], '(' .. id, '+', 'COUNT', count)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local oldest = false
local first = after(redis.call('HGET', KEYS[2], 'applied') or '0-0', 1)[1]
if first then
    oldest = math.max(now - tonumber(string.match(first[1], '^%d+')), 0)
end

local read = false
if not first then
    local info = redis.call('XINFO', 'STREAM', KEYS[1])
    for at = 1, #info, 2 do
        if info[at] == 'entries-added' then
            read = info[at + 1]
        end
    end
end

local unread = 0
if #after(delivered, 1) > 0 then
    if not lag then
        lag = #after(delivered, COUNTED_MAX)
        if lag == COUNTED_MAX then
            lag = redis.call('XLEN', KEYS[1])
        end
    end
    unread = math.max(lag, 1)
end
return {unread, pending, oldest, redis.call('XLEN', KEYS[3]), redis.call('XLEN', KEYS[4]), now,
    redis.call('HEXISTS', KEYS[2], 'roll_asked'), redis.call('HEXISTS', KEYS[2], 'generation'), read}
