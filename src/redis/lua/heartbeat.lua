#!lua flags=allow-oom
-- KEYS  1 workers
-- ARGV  1 worker  2 longest silence (ms)
-- Answers the living workers.
-- Allowed when memory is full: a few bytes, and workers that forget each other would only add to the trouble.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - tonumber(ARGV[2])))
-- Heard of before the clock went back, as with a failover: who lives is heard of again at once, and who does not would be
-- waited for until the clock is there again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
return redis.call('ZRANGE', KEYS[1], 0, -1)
