#!lua flags=allow-oom
-- KEYS  1 lease
-- ARGV  1 holder  2 longest time to live of the lease (ms)
-- Answers 1 where the lease is still this holder's and would have lasted longer, or for ever; else 0.
-- Allowed when memory is full: PEXPIRE takes none.

local left = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) == ARGV[1] and (left == -1 or left > tonumber(ARGV[2])) then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
