//! A store on which somebody else comes in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;

use super::Desk;
use crate::store::{Entry, Error, GroupStore, Memory, Revision, Scope, Store, Watch, Write};

type Meddle = fn(Desk) -> BoxFuture<'static, ()>;

/// When somebody comes; by what keys begin with.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// Just before the next write of such keys.
    BeforeWrite(&'static str),
    /// Just after the next list of them.
    AfterList(&'static str),
}

/// See [`meddled`].
#[derive(Debug)]
pub(super) struct Meddled {
    inner: Arc<dyn Store>,
    when: When,
    meddle: Meddle,
    armed: AtomicBool,
}

impl Meddled {
    /// From now on.
    pub(super) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_come(&self) -> bool {
        !self.armed.load(Ordering::Relaxed)
    }

    async fn come(&self) {
        if self.armed.swap(false, Ordering::Relaxed) {
            let store = GroupStore::new(self.inner.clone(), "g").expect("a name");
            (self.meddle)(Desk { store }).await;
        }
    }
}

/// A desk on a store on which, once armed, somebody does this then.
pub(super) fn meddled(when: When, meddle: Meddle) -> (Desk, Arc<Meddled>) {
    let meddled = Arc::new(Meddled {
        inner: Arc::new(Memory::new()),
        when,
        meddle,
        armed: AtomicBool::new(false),
    });
    let store = GroupStore::new(meddled.clone(), "g").expect("a name");
    (Desk { store }, meddled)
}

#[async_trait::async_trait]
impl Store for Meddled {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.inner.read(key).await
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        let listed = self.inner.list(scope).await;
        if let (When::AfterList(of), Scope::Under(under)) = (self.when, scope)
            && under.starts_with(of)
        {
            self.come().await;
        }
        listed
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        if let When::BeforeWrite(of) = self.when
            && batch.iter().any(|one| one.key.starts_with(of))
        {
            self.come().await;
        }
        self.inner.write(batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        self.inner.watch(scope)
    }
}
