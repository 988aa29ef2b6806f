//! One statement with arrays: one round trip for the whole batch.

use async_trait::async_trait;
use parti::store::Bytes;
use tokio_postgres::{Client, NoTls, Statement};

use super::Plain;

pub struct Postgres {
    client: Client,
    insert: Statement,
    update: Statement,
    revisions: Vec<i64>,
}

impl Postgres {
    pub async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a server");
        tokio::spawn(connection);
        client
            .batch_execute(
                r#"CREATE TABLE plain (
                       key text COLLATE "C" PRIMARY KEY, revision bigint NOT NULL, value bytea
                   ) WITH (fillfactor = 60)"#,
            )
            .await
            .expect("a table");
        let insert = client
            .prepare(
                "INSERT INTO plain (key, value, revision)
                 SELECT key, value, revision + 1
                   FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS i(key, value, revision)
                 RETURNING key",
            )
            .await
            .expect("a statement");
        let update = client
            .prepare(
                "UPDATE plain SET value = i.value, revision = i.revision + 1
                   FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS i(key, value, revision)
                  WHERE plain.key = i.key AND plain.revision = i.revision
                 RETURNING plain.key",
            )
            .await
            .expect("a statement");
        Self {
            client,
            insert,
            update,
            revisions: Vec::new(),
        }
    }
}

#[async_trait]
impl Plain for Postgres {
    async fn write(&mut self, writes: &[(String, Bytes)]) {
        let statement = match self.revisions.is_empty() {
            true => &self.insert,
            false => &self.update,
        };
        self.revisions.resize(writes.len(), 0);
        let keys: Vec<&str> = writes.iter().map(|(key, _)| key.as_str()).collect();
        let values: Vec<&[u8]> = writes.iter().map(|(_, value)| &value[..]).collect();
        let rows = self
            .client
            .query(statement, &[&keys, &values, &self.revisions])
            .await
            .expect("an answer");
        assert_eq!(rows.len(), writes.len());
        self.revisions
            .iter_mut()
            .for_each(|revision| *revision += 1);
    }
}
