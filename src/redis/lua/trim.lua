#!lua flags=allow-oom
-- KEYS  1 changes
-- ARGV  1 group  2 retention (ms)
-- Answers how many entries were removed: those older than the retention that no group has yet to read or to acknowledge.
-- Allowed when memory is full: it makes room.

-- What one call removes in whole nodes of the stream at most; a larger backlog goes in several calls, since Redis serves
-- nobody else meanwhile. Who is told of half as many asks again.
local REMOVED_MAX = 10000
local EXACT_MAX = 9007199254740991

if redis.call('EXISTS', KEYS[1]) == 0 then
    return 0
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local least_major, least_minor = math.max(now - tonumber(ARGV[2]), 0), 0

local function keep_from(id, after)
    local major, minor = string.match(id, '^(%d+)%-(%d+)$')
    major, minor = tonumber(major), tonumber(minor)
    -- Where a double cannot count on, a few entries more stay.
    if minor >= EXACT_MAX then
        minor = EXACT_MAX
    elseif after then
        minor = minor + 1
    end
    if major < least_major or (major == least_major and minor < least_minor) then
        least_major, least_minor = major, minor
    end
end

local known = false
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local fields = {}
    for at = 1, #group, 2 do
        fields[group[at]] = group[at + 1]
    end
    known = known or fields['name'] == ARGV[1]
    keep_from(fields['last-delivered-id'], true)
    if fields['pending'] > 0 then
        keep_from(redis.call('XPENDING', KEYS[1], fields['name'])[2], false)
    end
end
-- A lost group has read nothing as far as anybody knows: it is recreated first.
if not known then
    return 0
end

local least = string.format('%.0f-%.0f', least_major, least_minor)
local removed = redis.call('XTRIM', KEYS[1], 'MINID', '~', least, 'LIMIT', REMOVED_MAX)
if removed < REMOVED_MAX / 2 then
    removed = removed + redis.call('XTRIM', KEYS[1], 'MINID', '=', least)
end
return removed
