//! A store on which somebody else comes just before a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;

use super::Desk;
use crate::store::{Entry, Error, GroupStore, Memory, Revision, Scope, Store, Watch, Write};

type Meddle = fn(Desk) -> BoxFuture<'static, ()>;

/// See [`meddled`].
#[derive(Debug)]
pub(super) struct Meddled {
    inner: Arc<dyn Store>,
    /// What keys begin with.
    of: &'static str,
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
}

/// A desk on a store on which, once armed, somebody does this just before the next write of such
/// keys.
pub(super) fn meddled(of: &'static str, meddle: Meddle) -> (Desk, Arc<Meddled>) {
    let meddled = Arc::new(Meddled {
        inner: Arc::new(Memory::new()),
        of,
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
        self.inner.list(scope).await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        let is_it = batch.iter().any(|one| one.key.starts_with(self.of));
        if is_it && self.armed.swap(false, Ordering::Relaxed) {
            let store = GroupStore::new(self.inner.clone(), "g").expect("a name");
            (self.meddle)(Desk { store }).await;
        }
        self.inner.write(batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        self.inner.watch(scope)
    }
}
