#!lua flags=allow-oom
-- KEYS  1 maintenance
-- ARGV  1 holder  2 whether to end another's too: 1 or 0  3 how long at least it is known that it was given up (ms)
-- Answers {} where there is none, or {1 or 0 where it is another's, holder, reason, for how long (ms), time left (ms)}.
-- What stays says that it was given up, for as long as it would have lasted: a worker that has not looked meanwhile would
-- take it for one that ran out.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local found = redis.call('HMGET', KEYS[1], 'holder', 'reason', 'since', 'off_at')
if not found[1] or found[4] then
    return {}
end
local left = math.max(redis.call('PTTL', KEYS[1]), 0)
local ends = found[1] == ARGV[1] or ARGV[2] == '1'
if ends then
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], 'holder', found[1], 'reason', found[2] or '', 'off_at', string.format('%.0f', now))
    redis.call('PEXPIRE', KEYS[1], math.max(left, tonumber(ARGV[3])))
end
return {ends and 1 or 0, found[1], found[2] or '', math.max(now - (tonumber(found[3]) or now), 0), left}
