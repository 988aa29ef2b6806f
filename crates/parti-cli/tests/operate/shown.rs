//! Tables to the letter.

use std::path::Path;
use std::sync::Arc;

use parti::core::ids::{Incarnation, Nonce, WorkerId};
use parti::core::key::Key;
use parti::core::record::{
    Outcome, OverridesRecord, Record, Request, RequestRecord, SessionStatus,
};
use serde_json::Value;

use super::scene::{Desk, billing, checkpoint, group_record, parti, said, session};

const STORE: &str = "sqlite:group.db";
const GROUP: [&str; 4] = ["--store", STORE, "--group", "billing"];

async fn stage() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    billing(&url).await;
    folder
}

fn of_group(folder: &Path, command: &[&str], more: &[&str]) -> String {
    said(folder, &[command, &GROUP[..], more].concat())
}

/// A log with 4 partitions of 50 messages each.
fn log(folder: &Path) {
    let produce = [
        "produce",
        "--source",
        "log:log",
        "--topic",
        "t",
        "--partitions",
        "4",
    ];
    // Without a key, messages go round.
    let said = parti(folder, &produce, &"message\n".repeat(200));
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_workers() {
    let folder = stage().await;
    let folder = folder.path();
    assert_eq!(
        said(folder, &["group", "list", "--store", STORE]),
        "\
GROUP    STATE        LEADER    WORKERS  PARTITIONS  OWNED
billing  rebalancing  worker-0        2           4      3
"
    );
    assert_eq!(
        of_group(folder, &["group", "describe"], &[]),
        "\
group         billing
coordination  leader
leader        worker-0, term 3
plan          version 8, rebalancing (stable): worker-1 joined
strategy      consistent_hash(virtual_nodes=150)
totals        2 workers, 4 partitions, 3 owned, 2 unserved, 1 moving

WORKER    STATUS   LAST BEAT  PARTITIONS  PREPARING  NOTE
worker-0  live     -                   2          0  leads
worker-1  live     -                   0          1
worker-2  evicted  -                   1          0

MOVING  FROM      TO        STAGE
1       worker-0  worker-1  ready
"
    );
    let described = of_group(folder, &["group", "describe"], &["-o", "json"]);
    let described: Value = serde_json::from_str(&described).expect("JSON");
    assert_eq!(described["handoffs"][0]["stage"], "ready");
    assert_eq!(described["workers"][2]["status"], "evicted");
    let yaml = of_group(folder, &["worker", "list"], &["-o", "yaml"]);
    assert!(yaml.starts_with("- worker: worker-0\n"), "{yaml}");
    let live = of_group(folder, &["worker", "list"], &[]);
    assert!(live.contains("worker-2"), "it still owns something: {live}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_way() {
    let folder = stage().await;
    let folder = folder.path();
    let none = of_group(folder, &["request", "list"], &[]);
    assert_eq!(none, "REQUEST  BY  ASKED  FOR  STATE  WHY\n");
    asked(folder, "worker-1", Outcome::Accepted).await;
    asked(folder, "worker-0", Outcome::Open).await;
    let list = of_group(folder, &["request", "list"], &[]);
    let table = "\
REQUEST         BY     ASKED                     FOR  STATE               WHY
drain worker-1  alice  2023-11-14T22:13:20.000Z  #d   under way           new kernel
drain worker-0  alice  2023-11-14T22:13:20.000Z  #d   waits for a leader  new kernel
";
    assert_eq!(without_age(&list), table, "{list}");
    let described = of_group(folder, &["group", "describe"], &[]);
    let described = without_age(&described);
    assert!(described.contains(&format!("\n\n{table}")), "{described}");
    let described = of_group(folder, &["group", "describe"], &["-o", "json"]);
    let described: Value = serde_json::from_str(&described).expect("JSON");
    let first = &described["requests"][0];
    assert_eq!(first["request"]["kind"], "drain");
    assert_eq!(first["progress"], "under_way");
    assert_eq!(described["requests"][1]["progress"], "waiting");
}

/// The age of requests that were made in 2023 grows, and its column with it.
fn without_age(text: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split("  ").collect();
        let days = |word: &&str| {
            let digits = word.strip_suffix('d');
            digits.is_some_and(|digits| digits.len() > 2 && digits.parse::<u64>().is_ok())
        };
        match words.iter().find(|word| days(word)) {
            Some(age) => line.replace(*age, "#d "),
            None => line.replace("FOR    ", "FOR  "),
        }
    };
    text.lines()
        .map(|text| format!("{}\n", line(text)))
        .collect()
}

async fn asked(folder: &Path, worker: &str, outcome: Outcome) {
    let url = format!("sqlite:{}", folder.join("group.db").display());
    let record = RequestRecord {
        request: Request::Drain {
            worker: WorkerId::new(worker),
        },
        by: "alice".into(),
        why: "new kernel".into(),
        at: 1_700_000_000_000,
        outcome,
        nonce: Nonce(1),
    };
    let key = Key::Request(worker.into());
    let record = Record::Request(Arc::new(record));
    Desk::open(&url, "billing")
        .await
        .put(vec![(key, record)])
        .await;
}

/// Whoever lives is drained: nothing is served, and everybody who looks is told why.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_drained_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let url = format!("sqlite:{}", folder.join("group.db").display());
    let desk = Desk::open(&url, "billing").await;
    let live = session("worker-1", SessionStatus::Live, &[]);
    let dead = session("worker-0", SessionStatus::Evicted, &[]);
    let lives = desk.put(vec![live, dead]).await;
    let mut overrides = OverridesRecord::default();
    overrides.drain(&WorkerId::new("worker-1"), Incarnation(lives[0].0));
    let mut records = vec![
        group_record(1),
        (Key::Overrides, Record::Overrides(Arc::new(overrides))),
    ];
    let dead = Some(("worker-0", Incarnation(lives[1].0)));
    records.extend((0..12).map(|n| checkpoint(&n.to_string(), dead, 1, None)));
    desk.put(records).await;
    let why = "12 partitions have no owner, because all living workers are drained (worker-1): \
               `parti worker undrain worker-1`";
    for command in [&["group", "describe"][..], &["status"]] {
        let said = of_group(folder, command, &[]);
        assert!(said.contains(&format!("attention     {why}\n")), "{said}");
    }
    let listed = parti(folder, &[&["partition", "list"], &GROUP[..]].concat(), "");
    assert_eq!(listed.err, format!("{why}\n"));
    let noted = listed
        .out
        .matches("all living workers are drained: undrain one");
    assert_eq!(noted.count(), 12, "{}", listed.out);
    let doctor = parti(folder, &[&["doctor"], &GROUP[..]].concat(), "");
    assert_eq!(doctor.code, Some(1), "{}", doctor.out);
    let line = format!("fail  partitions     {why}\n");
    assert!(doctor.out.contains(&line), "{}", doctor.out);
    let described = of_group(folder, &["group", "describe"], &["-o", "json"]);
    let described: Value = serde_json::from_str(&described).expect("JSON");
    assert_eq!(described["stranded"]["partitions"], 12);
}

/// The doctor names a few, and counts the rest.
#[tokio::test(flavor = "multi_thread")]
async fn many_without_an_owner_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let url = format!("sqlite:{}", folder.join("group.db").display());
    let desk = Desk::open(&url, "billing").await;
    let mut records = vec![
        group_record(1),
        session("worker-1", SessionStatus::Live, &[]),
    ];
    records.extend((0..12).map(|n| checkpoint(&n.to_string(), None, 1, None)));
    desk.put(records).await;
    let doctor = parti(folder, &[&["doctor"], &GROUP[..]].concat(), "");
    let said = "12 of 12 partitions have no owner: 0, 1, 2, 3, 4 and 7 more";
    assert!(doctor.out.contains(said), "{}", doctor.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_and_checkpoints() {
    let folder = stage().await;
    let folder = folder.path();
    log(folder);
    let source = ["--source", "log:log", "--topic", "t"];
    assert_eq!(
        of_group(folder, &["partition", "list"], &source),
        "\
PARTITION  OWNER     EPOCH  OFFSET  NEXT  END  LAG  NOTE
0          worker-0      4      41    42   50    8
1          worker-0      2       -     0   50   50  moves to worker-1
2          worker-2      9      99   100   50    0  its owner's session is over; past its last message
3          -             1       4     5   50   45
"
    );
    let behind = of_group(
        folder,
        &["partition", "list"],
        &[&source[..], &["--min-lag", "46"]].concat(),
    );
    assert_eq!(behind.lines().count(), 2, "{behind}");
    let unserved = of_group(
        folder,
        &["partition", "list"],
        &["--unserved", "-o", "json"],
    );
    let unserved: Value = serde_json::from_str(&unserved).expect("JSON");
    assert_eq!(unserved.as_array().map(Vec::len), Some(2), "{unserved}");
    assert_eq!(
        of_group(folder, &["partition", "describe", "1"], &source),
        "\
partition     1
owner         worker-0, session live
assigned to   worker-0
prepared by   worker-1
epoch         2
offset        -
next offset   0
done above    0
suspicion     -
first         0
end           50
lag           50
paused        no
claimed at    2023-11-14T22:13:20.000Z
updated at    2023-11-14T22:14:20.000Z
note          moves to worker-1
"
    );
    assert_eq!(
        of_group(folder, &["checkpoint", "list"], &[]),
        "\
PARTITION  EPOCH  OFFSET  NEXT  UPDATED
0              4      41    42  2023-11-14T22:14:20.000Z
1              2       -     0  2023-11-14T22:14:20.000Z
2              9      99   100  2023-11-14T22:14:20.000Z
3              1       4     5  2023-11-14T22:14:20.000Z
"
    );
    let get = of_group(folder, &["checkpoint", "get"], &["-p", "3", "-o", "json"]);
    let get: Value = serde_json::from_str(&get).expect("JSON");
    assert_eq!(
        (&get["offset"], &get["next_offset"]),
        (&4.into(), &5.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_before_and_after() {
    let folder = stage().await;
    let folder = folder.path();
    log(folder);
    let source = ["--source", "log:log", "--topic", "t"];
    let reset =
        |more: &[&'static str]| [&["checkpoint", "reset"], &GROUP[..], &source[..], more].concat();
    let dry = reset(&["--all", "--to", "latest", "--force", "--dry-run"]);
    let shown = parti(folder, &dry, "");
    assert_eq!(
        shown.out,
        "\
PARTITION  BEFORE  AFTER  CHANGE  EPOCH  SERVED BY
0              42     50      +8      5  worker-0
1               0     50     +50      3  worker-0
2             100     50     -50     10  -
3               5     50     +45      2  -
"
    );
    assert_eq!(
        shown.err,
        "4 checkpoints would change; nothing was written (--dry-run)\n"
    );
    // To look needs no force; it is said what the change would need.
    let looked = parti(
        folder,
        &reset(&["--all", "--to", "latest", "--dry-run"]),
        "",
    );
    assert_eq!((looked.code, looked.out), (Some(0), shown.out));
    assert_eq!(
        looked.err,
        "4 checkpoints would change; nothing was written (--dry-run)\n\
         without --dry-run it is refused: partition 0 is being served by worker-0 (1 more); \
         pause it or stop its worker, or give --force\n"
    );
    let free = reset(&["-p", "2", "-p", "3", "--to", "7"]);
    let done = parti(folder, &free, "");
    assert_eq!(
        (done.code, done.err.as_str()),
        (Some(0), "2 checkpoints changed\n")
    );
    let again = parti(folder, &free, "");
    assert_eq!(
        again.out,
        "\
PARTITION  BEFORE  AFTER  CHANGE  EPOCH  SERVED BY
2               7      7    same     10  -
3               7      7    same      2  -
"
    );
    let set = [
        &["checkpoint", "set"],
        &GROUP[..],
        &["-p", "3", "--done", "9"],
    ]
    .concat();
    let set = parti(folder, &set, "");
    assert_eq!(set.code, Some(0), "{}", set.err);
    assert!(set.err.starts_with("without --source"), "{}", set.err);
    assert!(
        set.out
            .ends_with("3               7     10      +3      3  -\n"),
        "{}",
        set.out
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_group_starts_from_what_its_workers_have() {
    let folder = stage().await;
    let plan = [
        &["plan"],
        &GROUP[..],
        &["--add", "1", "--remove", "worker-1"],
    ]
    .concat();
    let shown = said(folder.path(), &plan);
    assert!(shown.contains("worker-1  0 -> gone"), "{shown}");
    assert!(
        shown.contains("\nworker-2  "),
        "the lowest free number joins: {shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_group_stands_below_what_operators_decided() {
    let folder = stage().await;
    let folder = folder.path();
    let workers = of_group(folder, &["worker", "list"], &["-o", "json"]);
    let workers: Value = serde_json::from_str(&workers).expect("JSON");
    let life = workers[1]["incarnation"].as_u64().expect("a life");
    let mut decided = OverridesRecord::default();
    decided.drain(&WorkerId::new("worker-1"), Incarnation(life));
    decided.pause(&parti::PartitionId::new("3"));
    let url = format!("sqlite:{}", folder.join("group.db").display());
    let desk = Desk::open(&url, "billing").await;
    desk.put(vec![(Key::Overrides, Record::Overrides(Arc::new(decided)))])
        .await;
    assert_eq!(
        of_group(folder, &["plan"], &[]),
        "\
STRATEGY                            BALANCE  BY COUNT  MOVED  LEAST  PLACED  UNSERVED
consistent_hash(virtual_nodes=150)    1.000     1.000      0      0       1         0
fair_share                            1.000     1.000      0      0       1         0
round_robin                           1.000     1.000      0      0       1         0

WORKER    consistent_hash(virtual_nodes=150)  fair_share  round_robin
worker-0  2 -> 3                              2 -> 3      2 -> 3
worker-1  0                                   0           0

worker-1 is drained: it gets nothing
1 partition is paused: nobody gets it
the group goes by consistent_hash(virtual_nodes=150)
"
    );
    let told = of_group(folder, &["plan"], &["-o", "json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        (&told[0]["own"], &told[1]["own"]),
        (&true.into(), &false.into())
    );
    assert_eq!(told[1]["partitions"]["3"]["after"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_names_do_not_break_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("group.db").display());
    let odd = Desk::open(&url, "a\nb\u{1b}[2J").await;
    odd.put(vec![group_record(1)]).await;
    let list = ["group", "list", "--store", "sqlite:group.db"];
    assert_eq!(
        said(folder.path(), &list),
        "\
GROUP          STATE  LEADER  WORKERS  PARTITIONS  OWNED
a\\nb\\u{1b}[2J  empty  -             0           0      0
"
    );
    // What is there can be ended.
    let delete = ["group", "delete", "--store", "sqlite:group.db", "--group"];
    let delete = [&delete[..], &["a\nb\u{1b}[2J"]].concat();
    let deleted = parti(folder.path(), &delete, "");
    assert_eq!(deleted.code, Some(0), "{}", deleted.err);
    assert_eq!(deleted.err.lines().count(), 1, "{}", deleted.err);
}
