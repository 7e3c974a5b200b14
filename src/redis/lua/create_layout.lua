#!lua
-- KEYS  1 layout
-- ARGV  1 shards  2 format  3 tags (msgpack)
-- Answers {1 where it was created, else 0; shards; format; tags} as they are stored now.

local created = 0
if redis.call('EXISTS', KEYS[1]) == 0 then
    local time = redis.call('TIME')
    local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
    redis.call('HSET', KEYS[1], 'shards', ARGV[1], 'format', ARGV[2], 'created_at', now, 'tags', ARGV[3])
    created = 1
end
return {created, unpack(redis.call('HMGET', KEYS[1], 'shards', 'format', 'tags'))}
