#!lua
-- KEYS  1 dead letters  2 changes
-- ARGV  for each letter: its id, how many arguments follow for it, fields and values of the entry
-- Answers for each letter the new entry's id, or nothing where the letter is gone.
-- One step: a letter is never in both streams, nor in neither, and never replayed twice, whoever tries and however often.

local answers = {}
local at = 1
while at < #ARGV do
    local id, count = ARGV[at], tonumber(ARGV[at + 1])
    answers[#answers + 1] = false
    if #redis.call('XRANGE', KEYS[1], id, id) > 0 then
        -- A refusal ends the script here: with the letters before this one replayed, and this one as it was.
        answers[#answers] = redis.call('XADD', KEYS[2], '*', unpack(ARGV, at + 2, at + 1 + count))
        redis.call('XDEL', KEYS[1], id)
    end
    at = at + 2 + count
end
return answers
