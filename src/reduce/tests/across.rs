//! What a batch has for other shards.

use super::*;

#[test]
fn the_other_side_goes_into_the_outbox_in_the_same_commit() {
    story().with("profile", "birthday", "--02-29").check(
        &["type=add user=42 friend=77 mutual=1"],
        &[Applied],
        &[
            "HSET user:{t}:42:birthdays 77=",
            "HSET user:{t}:42:versions 77:=1795978800000-1-0",
            "PERSIST user:{t}:42:versions",
            "ZADD users:{t} 0=42",
            "XADD outbox:{t} type=mirror.add user=77 friend=42 birthday=--02-29 ask=1 order=1795978800000-1-0",
        ],
    );
}

#[test]
fn a_forgotten_user_is_put_aside_and_worked_off() {
    let mut told = story();
    told.extent = (3, true);
    told.check(
        &["type=forget user=42"],
        &[Applied],
        &[
            "RENAME user:{t}:42:birthdays forgotten:{t}:42:7-1",
            "UNLINK user:{t}:42:profile user:{t}:42:versions user:{t}:42:activity user:{t}:42:top",
            "HSET user:{t}:42:versions ::=1795978800000-1-0",
            "PEXPIRE user:{t}:42:versions 2592000000",
            "ZREM users:{t} 42",
            "HDEL fanout:{t} 42",
            "HSET fanout:{t} 42:7-1=1795978800000-1-0 0-0",
        ],
    );
}
