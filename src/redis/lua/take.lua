#!lua
-- KEYS  1 lease  2 state  3 changes  4 log  5 users  6 producers  7 dead letters  8 outbox  9 fanout
-- ARGV  1 worker  2 time to live of the lease (ms)  3 group
-- Answers {'held', worker}, {'foreign', what is wrong} or {'mine', cause, read, generation, last, applied, entries, dead, skipped,
-- order, first, open, rolled}. `read` is how many entries the stream has had up to the applied one; false where Redis cannot tell.
-- The cause is why the lease was free: first, released, expired or same, as `store::Cause` has them.
-- Everything is looked at before anything is written, since a script is not rolled back.

local KINDS = {'string', 'hash', 'stream', 'stream', 'zset', 'hash', 'stream', 'stream', 'hash'}
-- Numbers are doubles here, exact up to this one; milliseconds reach it in the year 287396.
local EXACT_MAX = 9007199254740991

local function foreign(at)
    local kind = redis.call('TYPE', KEYS[at]).ok
    if kind ~= 'none' and kind ~= KINDS[at] then
        return {'foreign', KEYS[at] .. ' is a ' .. kind .. ', expected a ' .. KINDS[at]}
    end
end

local function parts(id)
    local major, minor = string.match(id, '^(%d+)%-(%d+)$')
    return tonumber(major), tonumber(minor)
end

local function last_generated(key)
    local info = redis.call('XINFO', 'STREAM', key)
    for at = 1, #info, 2 do
        if info[at] == 'last-generated-id' then
            return parts(info[at + 1])
        end
    end
end

local spoilt = foreign(1)
if spoilt then
    return spoilt
end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
    return {'held', holder}
end
for at = 2, #KEYS do
    spoilt = foreign(at)
    if spoilt then
        return spoilt
    end
end

-- A generation is above every earlier one and above the tips of log and outbox, so that no commit id is ever issued twice,
-- whatever a failover or a clock has taken back.
local stored = tonumber(redis.call('HGET', KEYS[2], 'generation') or '0')
if not stored then
    return {'foreign', KEYS[2] .. ': generation is not a number'}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local generation = math.max(now, stored + 1)
for _, stream in ipairs({KEYS[4], KEYS[8]}) do
    if redis.call('EXISTS', stream) == 1 then
        generation = math.max(generation, last_generated(stream) + 1)
    end
end
if generation > EXACT_MAX then
    return {'foreign', KEYS[2] .. ', ' .. KEYS[4] .. ' or ' .. KEYS[8] .. ': generation beyond ' .. string.format('%.0f', EXACT_MAX)}
end

local former = redis.call('HGET', KEYS[2], 'owner')
local moves = tonumber(redis.call('HGET', KEYS[2], 'moves') or '0')
if not moves then
    return {'foreign', KEYS[2] .. ': moves is not a number'}
end
local cause = 'expired'
if not former then
    cause = 'first'
elseif redis.call('HEXISTS', KEYS[2], 'released_at') == 1 then
    cause = 'released'
elseif former == ARGV[1] then
    cause = 'same'
end
if former and former ~= ARGV[1] then
    moves = moves + 1
end

local applied = redis.call('HGET', KEYS[2], 'applied') or '0-0'
local applied_major, applied_minor = parts(applied)
if not applied_major then
    return {'foreign', KEYS[2] .. ': applied is not an entry id'}
end
-- A lost group goes on where the views are; a new one begins at the beginning, never at the end.
local created = redis.pcall('XGROUP', 'CREATE', KEYS[3], ARGV[3], applied, 'MKSTREAM')
if created.err and not string.find(created.err, 'BUSYGROUP', 1, true) then
    return created
end
-- A stream that was lost and begun anew: its next entries must not pass for entries that are applied already.
local major, minor = last_generated(KEYS[3])
if major < applied_major or (major == applied_major and minor < applied_minor) then
    redis.call('XSETID', KEYS[3], applied)
end

local function fields(list)
    local found = {}
    for at = 1, #list, 2 do
        found[list[at]] = list[at + 1]
    end
    return found
end

local added = fields(redis.call('XINFO', 'STREAM', KEYS[3]))['entries-added']
local read = false
if #redis.call('XRANGE', KEYS[3], '(' .. applied, '+', 'COUNT', 1) == 0 then
    read = string.format('%.0f', added)
end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[3])) do
    local found = fields(group)
    if not read and found['name'] == ARGV[3] and found['lag'] then
        local pending = redis.call('XPENDING', KEYS[3], ARGV[3])
        local first_major, first_minor = parts(pending[2] or '0-0')
        local delivered_major, delivered_minor = parts(found['last-delivered-id'])
        -- The group's count ends at its position; what is pending behind that is not in it.
        if delivered_major < applied_major or (delivered_major == applied_major and delivered_minor <= applied_minor) then
            pending = {0}
        end
        -- What is pending though it is applied is counted twice; that is rare, and then nothing is known.
        if pending[1] == 0 or first_major > applied_major or (first_major == applied_major and first_minor > applied_minor) then
            read = string.format('%.0f', math.max(added - found['lag'] - pending[1], 0))
        end
    end
end

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'generation', string.format('%.0f', generation), 'owner', ARGV[1],
    'moves', string.format('%.0f', moves))
if cause ~= 'same' then
    redis.call('HSET', KEYS[2], 'owned_at', string.format('%.0f', now))
    redis.call('HDEL', KEYS[2], 'released_at')
end
return {'mine', cause, read, unpack(redis.call('HMGET', KEYS[2], 'generation', 'last', 'applied', 'entries', 'dead', 'skipped',
    'order', 'first', 'open', 'rolled'))}
