//! The wrappers keep the contract: without faults all of it, with faults what is left of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parti::store::conformance::{Observer, Subject, Suite};
use parti::store::faulty::{Faults, Faulty};
use parti::store::metered::Metered;
use parti::store::{Entry, Error, Expect, Memory, Scope, Store, StoreExt, Write};
use parti_core::rng::Rng;

struct Wrapped {
    name: &'static str,
    faulty: Faulty,
    disturbs: bool,
}

impl Wrapped {
    fn new(name: &'static str, disturbs: bool) -> Self {
        let store = Arc::new(Memory::new());
        let faulty = Faulty::new(store, 7);
        Self {
            name,
            faulty,
            disturbs,
        }
    }

    async fn conforms(self, only: &str) {
        let report = Suite::new(&self).only(only).run().await;
        println!("{report}");
        report.assert();
    }
}

#[async_trait]
impl Subject for Wrapped {
    fn name(&self) -> &str {
        self.name
    }

    async fn connect(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(Metered::new(Arc::new(self.faulty.clone()))))
    }

    fn can_disturb(&self) -> bool {
        self.disturbs
    }

    async fn disturb(&self) -> Result<(), Error> {
        self.faulty.outage(true);
        tokio::task::yield_now().await;
        self.faulty.outage(false);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_faults_the_wrappers_conform_outages_included() {
    Wrapped::new("wrapped", true).conforms("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_come_twice_or_late_keep_the_contract() {
    let wrapped = Wrapped::new("twice", true);
    wrapped.faulty.set(Faults {
        duplicate: 0.5,
        delay: 0.01,
        longest: Duration::from_millis(2),
        ..Faults::default()
    });
    let faulty = wrapped.faulty.clone();
    wrapped.conforms("").await;
    assert!(faulty.injected().duplicates > 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_are_dropped_are_told_anew() {
    for cases in ["seam", "script", "one_key", "slow", "several", "five"] {
        let wrapped = Wrapped::new("dropped", true);
        wrapped.faulty.set(Faults {
            duplicate: 0.1,
            drop: 0.02,
            longest: Duration::from_millis(1),
            ..Faults::default()
        });
        wrapped.conforms(cases).await;
    }
}

/// The one thing that everybody does on an unknown outcome: settle it by a further write. With
/// every fault there is, what was acknowledged counts once, and what is unknown at most once.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_whatever_goes_wrong() {
    for seed in 0..8 {
        let faulty = Faulty::new(Arc::new(Memory::new()), seed).with(Faults {
            delay: 0.2,
            longest: Duration::from_millis(2),
            error: 0.1,
            lost_reply: 0.1,
            late_write: 0.1,
            duplicate: 0.2,
            drop: 0.1,
        });
        let scope = Scope::Key("counter".into());
        let mut observer = Observer::new(faulty.watch(scope.clone()), scope);
        let writers: Vec<_> = (0..4)
            .map(|_| tokio::spawn(count(faulty.clone(), 50)))
            .collect();
        let mut rng = Rng::new(seed);
        for _ in 0..3 {
            faulty.outage(true);
            tokio::time::sleep(Duration::from_millis(rng.below(5))).await;
            faulty.outage(false);
            observer.synced().await.expect("the contract");
        }
        let (mut least, mut most) = (0, 0);
        for writer in writers {
            let (acknowledged, unknown) = writer.await.expect("a writer");
            least += acknowledged;
            most += acknowledged + unknown;
        }
        faulty.set(Faults::default());
        let last = settle(&faulty).await;
        let count: u64 = text(&last).parse().expect("a number");
        assert!((least..=most).contains(&count), "{least} {count} {most}");
        observer.until(&[last]).await.expect("the truth");
    }
}

/// Increments until so many are acknowledged; counts those and the unknown ones.
async fn count(store: Faulty, target: u64) -> (u64, u64) {
    let (mut acknowledged, mut unknown) = (0, 0);
    let mut current: Option<Entry> = None;
    while acknowledged < target {
        let now = current.as_ref();
        let number: u64 = now.map_or(0, |now| text(now).parse().expect("a number"));
        let value = (number + 1).to_string();
        let write = Write {
            key: "counter".into(),
            expect: now.map_or(Expect::Absent, |now| Expect::At(now.revision)),
            value: Some(value.clone().into()),
        };
        match store.write_one(write).await {
            Ok(revision) => {
                acknowledged += 1;
                current = Some(Entry {
                    key: "counter".into(),
                    revision,
                    value: value.into(),
                });
            }
            Err(Error::Conflict { current: told }) => current = told.map(|told| *told),
            Err(Error::Unknown { .. }) => unknown += 1,
            Err(Error::Unavailable { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
    (acknowledged, unknown)
}

/// Writes once more over what is there: from then on, no late write can land.
async fn settle(store: &Faulty) -> Entry {
    loop {
        let now = store.read("counter").await.expect("no faults any more");
        let now = now.expect("it was counted");
        match store
            .update(&now.key, now.revision, now.value.clone())
            .await
        {
            Ok(revision) => return Entry { revision, ..now },
            Err(Error::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

fn text(entry: &Entry) -> &str {
    std::str::from_utf8(&entry.value).expect("text")
}
