//! An operator's own pause beside a forced change, in a group without a leader.

use parti_core::ids::Nonce;
use parti_core::record::{Outcome, RequestRecord};

use super::force::{apply, paused, served, told, until_paused};
use super::*;
use crate::store::Revision;

fn pause() -> Request {
    Request::Pause {
        partition: partition("0"),
    }
}

fn bob() -> Reason {
    Reason {
        by: "bob".into(),
        why: "for good".into(),
    }
}

/// Nobody plays a worker that says what it heeds: so the effect is not waited for.
async fn bob_pauses(desk: &Desk) {
    let asked = request(&desk.store, pause(), bob(), Duration::from_millis(1)).await;
    assert!(matches!(asked, Err(Error::Unfinished(_))), "{asked:?}");
}

/// Revisions of all requests that are kept.
async fn marks(desk: &Desk) -> Vec<Revision> {
    let found = desk.store.list(Prefix::Requests).await.expect("readable");
    found.iter().map(|stored| stored.revision).collect()
}

#[tokio::test(start_paused = true)]
async fn an_operators_pause_outlives_the_forced_change_that_had_paused_it_before() {
    let (desk, _) = served("leaderless").await;
    let others = async {
        until_paused(&desk, &["0", "1"]).await;
        bob_pauses(&desk).await;
        desk.owned("0", None, Some(20)).await;
        desk.owned("1", None, Some(20)).await;
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0", "1"]), others);
    assert_eq!(
        applied.left_paused,
        [],
        "nothing that it should have resumed"
    );
    for change in &applied.changes {
        assert_eq!(
            (&change.verdict, &change.served_by),
            (&Verdict::Change, &None)
        );
    }
    assert_eq!(paused(&desk).await, ["0"]);
    let told = told(&desk).await;
    let resumed = "alice asked to resume partition 1 (after a forced change of its checkpoint: ";
    let resumes: Vec<&String> = told.iter().filter(|line| line.contains("resume")).collect();
    assert!(
        matches!(&resumes[..], [one] if one.starts_with(resumed)),
        "{told:?}"
    );
    assert_eq!(desk.seen().await.requests, [], "nothing is under way");
    let resume = Request::Resume {
        partition: partition("0"),
    };
    let resumed = request(&desk.store, resume, bob(), Duration::from_secs(1)).await;
    assert!(resumed.is_ok(), "{resumed:?}");
    assert_eq!(paused(&desk).await, [""; 0]);
    assert_eq!(marks(&desk).await, [], "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_a_pause_that_is_over_keeps_nothing_paused() {
    let (desk, _) = served("leaderless").await;
    let mark = RequestRecord {
        request: pause(),
        by: "bob".into(),
        why: String::new(),
        at: 1,
        outcome: Outcome::Done,
        nonce: Nonce(1),
    };
    let key = Key::Request("bobs".into());
    desk.put(key, Record::Request(mark.into())).await;
    let letting_go = async {
        until_paused(&desk, &["0"]).await;
        desk.owned("0", None, Some(20)).await;
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0"]), letting_go);
    assert_eq!(applied.changes[0].served_by, None);
    assert_eq!(paused(&desk).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_refused_leaves_no_mark_and_one_that_is_repeated_leaves_one() {
    let (desk, _) = served("leaderless").await;
    let unknown = Request::Pause {
        partition: partition("7"),
    };
    let refused = request(&desk.store, unknown, bob(), Duration::from_secs(1)).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(marks(&desk).await, []);
    bob_pauses(&desk).await;
    bob_pauses(&desk).await;
    assert_eq!(marks(&desk).await.len(), 1);
}

/// It has seen the mark, and takes it for one of a pause that was over.
#[tokio::test(start_paused = true)]
async fn whoever_pauses_between_the_mark_and_the_pause_meets_a_newer_mark() {
    // A forced change pauses partition 0 just before overrides are written.
    let (desk, meddled) = meddled(When::BeforeWrite("overrides"), |desk| {
        Box::pin(async move { desk.decide(|own| own.pause(&partition("0"))).await })
    });
    super::force::populate(&desk, "leaderless").await;
    desk.decide(|_| {}).await;
    meddled.arm();
    let before = desk.store.read(&Key::Overrides).await.expect("readable");
    let before = before.expect("there").revision;
    bob_pauses(&desk).await;
    let marks = marks(&desk).await;
    // The mark, the other's pause, and the first try to enter ours came before it.
    assert!(
        matches!(marks[..], [mark] if mark.0 > before.0 + 2),
        "{marks:?} after {before:?}"
    );
    assert!(meddled.has_come(), "it came between");
}
