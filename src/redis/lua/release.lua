#!lua flags=allow-oom
-- KEYS  1 lease  2 state
-- ARGV  1 worker
-- Answers 1, or 0 where the lease was not this worker's.
-- Allowed when memory is full: it frees a key, and a note that the shard was given up in order takes a few bytes.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
-- A state that is no hash is for a person to mend, and one that is gone stays so.
if redis.call('TYPE', KEYS[2]).ok == 'hash' then
    local time = redis.call('TIME')
    local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
    redis.call('HSET', KEYS[2], 'released_at', string.format('%.0f', now))
end
return redis.call('DEL', KEYS[1])
