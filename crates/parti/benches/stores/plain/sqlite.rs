//! One transaction of one prepared statement, on a table without further indexes.

use std::path::Path;

use async_trait::async_trait;
use parti::store::Bytes;
use rusqlite::{Connection, TransactionBehavior, params};

use super::Plain;

pub struct Sqlite {
    connection: Connection,
    round: i64,
}

impl Sqlite {
    pub fn create(file: &Path) -> Self {
        let connection = Connection::open(file).expect("a file");
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE records (
                     key TEXT PRIMARY KEY, revision INTEGER NOT NULL, value BLOB
                 ) STRICT, WITHOUT ROWID;",
            )
            .expect("a table");
        Self {
            connection,
            round: 0,
        }
    }
}

#[async_trait]
impl Plain for Sqlite {
    async fn write(&mut self, writes: &[(String, Bytes)]) {
        let statement = match self.round {
            0 => "INSERT INTO records (key, value, revision) VALUES (?1, ?2, ?3 + 1)",
            _ => {
                "UPDATE records SET value = ?2, revision = ?3 + 1 WHERE key = ?1 AND revision = ?3"
            }
        };
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .expect("a transaction");
        let mut statement = transaction.prepare_cached(statement).expect("a statement");
        for (key, value) in writes {
            let changed = statement.execute(params![key, &value[..], self.round]);
            assert_eq!(changed, Ok(1));
        }
        drop(statement);
        transaction.commit().expect("a commit");
        self.round += 1;
    }
}
