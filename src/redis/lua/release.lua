#!lua flags=allow-oom
-- KEYS  1 lease
-- ARGV  1 worker
-- Answers 1, or 0 where the lease was not this worker's.

if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
