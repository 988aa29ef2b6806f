//! Checkpoints from elsewhere.

use serde_json::Value;

use super::scene::{parti, said};

#[test]
fn checkpoints_come_back_with_higher_epochs_and_never_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let group = ["--store", "sqlite:group.db", "--group", "billing"];
    let import =
        |more: &[&'static str]| [&["checkpoint", "import"], &group[..], more, &["-"]].concat();
    let cursors = "/danube/subscriptions/default/orders-part-0/billing/cursor\n\
                   {\"offset\": 41, \"updated_at\": 1726937845}\n\
                   /topics/default/orders-part-1/subscriptions/billing/cursor\n7\n\
                   /topics/default/orders-part-1/subscriptions/audit/cursor\n3\n";
    // Nobody has such a group, nor even such a store.
    for (more, why) in [
        (&[][..], "there is no such file"),
        (&["--dry-run"], "there is no such file"),
    ] {
        let refused = parti(folder, &import(more), cursors);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    assert!(!folder.join("group.db").exists());
    let import = |more: &[&'static str]| import(&[&["--new-group"], more].concat());
    let dry = parti(folder, &import(&["--dry-run"]), cursors);
    assert_eq!(
        dry.out,
        "\
PARTITION  BEFORE  AFTER  CHANGE    EPOCH  SERVED BY
0               -     42     new  1048577  -
1               -      8     new  1048577  -
"
    );
    assert_eq!(
        dry.err,
        "only cursors of subscription billing are taken; there are others: audit\n\
         2 checkpoints would change; nothing was written (--dry-run)\n"
    );
    let done = parti(folder, &import(&[]), cursors);
    assert_eq!(done.code, Some(0), "{}", done.err);
    // They can be looked at, and taken elsewhere, though nobody has come for them yet.
    let wait = "group billing is not there yet: its first workers begin at these checkpoints\n";
    for (command, shown) in [
        (&["list"][..], "0          1048577      41    42"),
        (&["get", "-p", "1"], "1          1048577       7     8"),
        (
            &["export"],
            "\"partition\":\"0\",\"epoch\":1048577,\"offset\":41",
        ),
    ] {
        let seen = parti(folder, &[&["checkpoint"], command, &group].concat(), "");
        assert_eq!(seen.code, Some(0), "{}", seen.err);
        assert!(seen.err.starts_with(wait), "{}", seen.err);
        assert!(seen.out.contains(shown), "{}", seen.out);
    }
    // Once more changes nothing.
    let again = parti(folder, &import(&[]), cursors);
    assert!(
        again.err.ends_with("0 checkpoints changed\n"),
        "{}",
        again.err
    );

    let older = "{\"partition\":\"1\",\"offset\":3}\n{\"partition\":\"0\",\"offset\":99}\n";
    let back = parti(folder, &import(&[]), older);
    assert_eq!(back.code, Some(4), "{}", back.err);
    assert_eq!(
        back.err,
        "parti: partition 1 would go back from 8 to 4; give --allow-back to handle those messages \
         again; nothing was changed\n"
    );
    let back = parti(folder, &import(&["--allow-back"]), older);
    assert_eq!(back.code, Some(0), "{}", back.err);
    assert!(
        back.out.contains("1               8      4      -4"),
        "{}",
        back.out
    );

    for (text, why) in [
        ("", "it is empty"),
        ("{\"partition\":\"a b\",\"offset\":1}", "no partition's id"),
        (
            "/topics/a/t/subscriptions/billing/cursor\n1\n\
             /topics/b/t/subscriptions/billing/cursor\n1",
            "partition t is there twice",
        ),
        (
            "/topics/t/subscriptions/other/cursor\n1",
            "name one with --subscription",
        ),
    ] {
        let refused = parti(folder, &import(&[]), text);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    let other = ["--store", "sqlite:group.db", "--group", "nobody", "-"];
    let nobody = parti(
        folder,
        &[&["checkpoint", "import"], &other[..]].concat(),
        older,
    );
    assert_eq!(nobody.code, Some(2), "{}", nobody.err);
    for part in ["--group nobody:", "has no such group", "give --new-group"] {
        assert!(nobody.err.contains(part), "{}", nobody.err);
    }
    let odd = [
        "--store",
        "sqlite:group.db",
        "--group",
        "a\nb",
        "--new-group",
        "-",
    ];
    let odd = parti(
        folder,
        &[&["checkpoint", "import"], &odd[..]].concat(),
        older,
    );
    assert_eq!(odd.code, Some(2), "{}", odd.err);
    assert!(
        odd.err
            .contains("--group: \"a\\nb\" contains the control character '\\n'"),
        "{}",
        odd.err
    );
    let missing = [&["checkpoint", "import"], &group[..], &["no.jsonl"]].concat();
    assert_eq!(parti(folder, &missing, "").code, Some(2));
}

#[test]
fn a_worker_goes_on_where_an_import_says() {
    let mut group = super::common::Group::new(2);
    group.produce(40);
    let folder = group.folder().to_owned();
    // The group is not there yet: checkpoints may wait for it.
    let cursors = "{\"partition\":\"0\",\"offset\":9}\n{\"partition\":\"1\",\"offset\":9}\n";
    let import = [
        "checkpoint",
        "import",
        "--store",
        "sqlite:group.db",
        "--group",
        "g",
        "--new-group",
        "-",
    ];
    let source = ["--source", "log:log", "--topic", "t"];
    let done = parti(&folder, &[&import[..], &source].concat(), cursors);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let worker = group.consume();
    group.serving(worker);
    group.until("the rest", |lines| {
        super::common::messages(lines).count() == 20
    });
    let list = [
        "checkpoint",
        "list",
        "--store",
        "sqlite:group.db",
        "--group",
        "g",
        "-o",
        "json",
    ];
    let list: Value = serde_json::from_str(&said(&folder, &list)).expect("JSON");
    assert!(list[0]["epoch"].as_u64() > Some(1 << 20), "{list}");
    let lines = group.stop(&[]);
    assert!(super::common::messages(&lines).all(|(_, offset)| offset >= 10));
}
