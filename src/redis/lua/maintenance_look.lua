#!lua flags=allow-oom
-- KEYS  1 maintenance
-- ARGV  1 worker  2 whether all its shards have paused: 1 or 0
-- Answers {'none'}, {'given up'} or {'on', holder, reason, for how long (ms), time left (ms)}.
-- Allowed when memory is full: a few bytes, and whoever waits for the workers must hear of them.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local found = redis.call('HMGET', KEYS[1], 'holder', 'reason', 'since', 'ttl', 'off_at')
if not found[1] then
    return {'none'}
end
if found[5] then
    return {'given up'}
end
-- A failover to a server whose clock is behind must not make it last longer.
local ttl, left = tonumber(found[4]), redis.call('PTTL', KEYS[1])
if ttl and (left < 0 or left > ttl) then
    redis.call('PEXPIRE', KEYS[1], ttl)
    left = ttl
end
local field = 'paused:' .. ARGV[1]
local told = redis.call('HEXISTS', KEYS[1], field) == 1
if ARGV[2] == '1' and not told then
    redis.call('HSET', KEYS[1], field, string.format('%.0f', now))
elseif ARGV[2] ~= '1' and told then
    redis.call('HDEL', KEYS[1], field)
end
return {'on', found[1], found[2] or '', math.max(now - (tonumber(found[3]) or now), 0), math.max(left, 0)}
