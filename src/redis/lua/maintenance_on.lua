#!lua flags=allow-oom
-- KEYS  1 maintenance
-- ARGV  1 holder  2 reason  3 time to live (ms)
-- Answers {1 or 0 where somebody else has it, holder, reason, for how long (ms), time left (ms)}.
-- Allowed when memory is full: that may be what the maintenance is for.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if redis.call('HEXISTS', KEYS[1], 'off_at') == 1 then
    redis.call('DEL', KEYS[1])
end
local holder = redis.call('HGET', KEYS[1], 'holder')
local mine = not holder or holder == ARGV[1]
if mine then
    redis.call('HSETNX', KEYS[1], 'since', string.format('%.0f', now))
    redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'reason', ARGV[2], 'ttl', ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
local found = redis.call('HMGET', KEYS[1], 'holder', 'reason', 'since')
local held = math.max(now - (tonumber(found[3]) or now), 0)
return {mine and 1 or 0, found[1], found[2] or '', held, math.max(redis.call('PTTL', KEYS[1]), 0)}
