#!lua
-- KEYS  1 dead letters  2 changes
-- ARGV  1 the letter's id  2... fields and values of the entry
-- Answers the new entry's id, or nothing where the letter is gone.
-- One step: a letter is never in both streams, nor in neither, and never replayed twice, whoever tries and however often.

if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
    return false
end
-- A refusal ends the script here, before anything was written.
local entry = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], ARGV[1])
return entry
