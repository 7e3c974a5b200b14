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

#[test]
fn a_friendship_that_its_version_let_pass_goes_with_a_friend_who_was_forgotten_after_it() {
    let mut met = story().with("versions", "77:", "1795978799000-5-0").with("versions", "77", "23:1795978799000");
    met.extent = (1, true);
    // It was on its way for long: the user has ended the friendship since, with a lower version.
    let added = "type=mirror.add user=42 friend=77 order=1795978797000-0-1 version=120 producer=shard:1 seq=1-1";
    // Before the friend was forgotten, and after.
    let forgotten = "type=mirror.forget user=42 friend=77 order=1795978798000-0-1 producer=shard:1 seq=1-2";
    let commit = met.commit(&[added, forgotten]);
    assert_eq!(commit.outcomes, [Applied, Applied]);
    let commands: Vec<String> = commit.ops.iter().map(text).collect();
    assert!(!commands.iter().any(|command| command.starts_with("HSET user:{t}:42:birthdays")), "{commands:?}");
}

#[test]
fn a_friendship_that_stands_is_not_made_older_by_a_version_that_was_on_its_way() {
    let mut met = story().with("birthdays", "77", "").with("versions", "77:", "1795978799000-5-0");
    met = met.with("versions", "77", "10");
    met.extent = (1, true);
    let added = "type=mirror.add user=42 friend=77 order=1795978797000-0-1 version=20 producer=shard:1 seq=1-1";
    let forgotten = "type=mirror.forget user=42 friend=77 order=1795978798000-0-1 producer=shard:1 seq=1-2";
    // The user made the friendship after the friend was forgotten, and the friend knows of it.
    let commit = met.commit(&[added, forgotten]);
    assert_eq!(commit.outcomes, [Unchanged, Outdated]);
}
