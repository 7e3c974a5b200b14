#!lua
-- KEYS  1 changes
-- ARGV  for each entry: how many words follow, then its fields and values
-- Appends them all in order, or none: a refusal comes before the script begins. Answers how many there were.

local entries, at = 0, 1
while at <= #ARGV do
    local words = tonumber(ARGV[at])
    redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + words))
    entries, at = entries + 1, at + words + 1
end
return entries
