//! A wish for the latest place: the end of a moment ago, or what owners did until they let go.

use parti_core::record::PartitionRecord;

use super::force::{forced, served, until_paused};
use super::*;

#[tokio::test(start_paused = true)]
async fn latest_is_never_behind_what_owners_did_until_they_let_go() {
    let (desk, _) = served("leaderless").await;
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let latest = |id| Wanted::latest(partition(id), Offset(15));
    let planned = checkpoints.plan(vec![latest("0"), latest("1")], forced());
    let nexts = |changes: &[Change]| -> Vec<u64> {
        let next = |change: &Change| change.after.next_offset.0;
        changes.iter().map(next).collect()
    };
    assert_eq!(nexts(&planned), [15, 15], "both are behind");
    let letting_go = async {
        until_paused(&desk, &["0", "1"]).await;
        desk.owned("0", None, Some(20)).await;
        desk.owned("1", None, Some(11)).await;
    };
    let why = reason();
    let applying = checkpoints.apply(planned, forced(), &why);
    let (applied, ()) = tokio::join!(applying, letting_go);
    let applied = applied.expect("writable");
    assert_eq!(applied.left_paused, []);
    assert_eq!(nexts(&applied.changes), [21, 15]);
    let verdicts = applied.changes.iter().map(|change| &change.verdict);
    let verdicts: Vec<&Verdict> = verdicts.collect();
    assert_eq!(verdicts, [&Verdict::Same, &Verdict::Change]);
    let seen = desk.seen().await;
    let next = |id| {
        seen.partition(&partition(id))
            .and_then(|one| one.next_offset)
    };
    assert_eq!((next("0"), next("1")), (Some(Offset(21)), Some(Offset(15))));
}

#[tokio::test]
async fn latest_goes_back_with_a_log_that_went_back() {
    let (desk, _) = served("leader").await;
    let latest = || vec![Wanted::latest(partition("0"), Offset(3))];
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let next = |planned: Vec<Change>| planned[0].after.next_offset;
    assert_eq!(next(checkpoints.plan(latest(), forced())), Offset(3));
}

#[test]
fn what_was_done_past_the_end_of_a_moment_ago_stays_done() {
    let found = PartitionRecord {
        offset: Some(Offset(9)),
        done_above: [12, 15, 16, 18].map(Offset).to_vec(),
        ..PartitionRecord::default()
    };
    let latest = Wanted::latest(partition("0"), Offset(15));
    assert_eq!(latest.from(Some(&found)), (Offset(17), vec![Offset(18)]));
    let set = Wanted::at(partition("0"), Offset(15));
    assert_eq!(set.from(Some(&found)), (Offset(15), vec![]));
}
