//! Single writes, for those who do not need batches.

use async_trait::async_trait;

use super::{Bytes, Error, Expect, Revision, Store, Write};

/// Sugar over [`Store::write`].
///
/// ```
/// use parti::store::{Error, Memory, Store, StoreExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let store = Memory::new();
/// let created = store.create("workers/orders/worker-0", "hello").await?;
/// let updated = store.update("workers/orders/worker-0", created, "again").await?;
/// assert!(updated > created);
///
/// // Whoever writes by an old revision is told what is there now.
/// let late = store.update("workers/orders/worker-0", created, "too late").await;
/// let Err(Error::Conflict { current: Some(current) }) = late else { panic!() };
/// assert_eq!(current.value, "again");
///
/// store.delete("workers/orders/worker-0", updated).await?;
/// assert_eq!(store.read("workers/orders/worker-0").await?, None);
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait StoreExt: Store {
    /// Writes one value if its expectation holds.
    async fn write_one(&self, write: Write) -> Result<Revision, Error> {
        let key = write.key.clone();
        self.write(vec![write]).await.pop().unwrap_or_else(|| {
            Err(Error::unknown(format!(
                "the backend gave no answer for {key}"
            )))
        })
    }

    /// Writes a value where there is none.
    async fn create(
        &self,
        key: &str,
        value: impl Into<Bytes> + Send + 'async_trait,
    ) -> Result<Revision, Error> {
        let (key, value) = (key.to_owned(), Some(value.into()));
        self.write_one(Write {
            key,
            expect: Expect::Absent,
            value,
        })
        .await
    }

    /// Writes a value over the one with this revision.
    async fn update(
        &self,
        key: &str,
        revision: Revision,
        value: impl Into<Bytes> + Send + 'async_trait,
    ) -> Result<Revision, Error> {
        let (key, value) = (key.to_owned(), Some(value.into()));
        self.write_one(Write {
            key,
            expect: Expect::At(revision),
            value,
        })
        .await
    }

    /// Deletes the value with this revision.
    async fn delete(&self, key: &str, revision: Revision) -> Result<Revision, Error> {
        self.write_one(Write {
            key: key.to_owned(),
            expect: Expect::At(revision),
            value: None,
        })
        .await
    }
}

impl<S: Store + ?Sized> StoreExt for S {}
