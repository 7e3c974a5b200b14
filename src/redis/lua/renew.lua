#!lua flags=allow-oom
-- KEYS  1 lease
-- ARGV  1 worker  2 time to live of the lease (ms)
-- Answers 1, or 0 where the lease is no longer this worker's.
-- Allowed when memory is full: PEXPIRE takes none, and a full server is no reason to change owners.

if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
