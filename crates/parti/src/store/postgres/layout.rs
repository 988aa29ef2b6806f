//! The tables and views: whether they are there, whether they can be used, and making them.

use std::time::Duration;

use super::super::{About, Error};
use super::fault::{self, During};
use super::pool::Lanes;
use super::session::{Session, Trouble};
use super::settings::Settings;

/// What this program creates and understands.
const FORMAT: i32 = 1;

/// The oldest server that has what we use (`xid8`).
const OLDEST: i32 = 130_000;

const LAYOUT: &str = include_str!("layout.sql");

/// How often to go on after someone else created the same thing at the same time.
const ATTEMPTS: u32 = 40;

/// Whether there are tables of ours, of whatever format.
pub(super) async fn is_there(session: &Session<()>, settings: &Settings) -> Result<bool, Error> {
    Ok(format_there(session, settings).await?.is_some())
}

/// Makes sure that this server and its tables can be used; creates what is missing.
pub(super) async fn ensure(session: &Session<()>, settings: &Settings) -> Result<(), Error> {
    check_server(session).await?;
    let layout = sql(settings);
    for attempt in 0..ATTEMPTS {
        if let Some(format) = format_there(session, settings).await? {
            check_format(format, settings)?;
            return check_rights(session, settings).await;
        }
        let created = session.client.batch_execute(&layout);
        match session.within(created).await {
            Ok(()) => {}
            Err(Trouble::Failed(failure)) if is_race(&failure) => {
                // Each waits its own while: whoever is first makes the rest find it done.
                let spread = u64::from(std::process::id()) % 16 + u64::from(attempt) * 7 % 16;
                tokio::time::sleep(Duration::from_millis(5 + spread)).await;
            }
            Err(Trouble::Failed(failure))
                if failure.code().is_some_and(|code| code.code() == "42501") =>
            {
                return Err(Error::rejected(format!(
                    "this user may not create the tables of Parti; let someone run this who may, and grant this user what it needs:\n\n{}\n{}",
                    layout,
                    grants(settings)
                )));
            }
            Err(trouble) => return Err(trouble.told(During::Asking)),
        }
    }
    Err(Error::unavailable(
        "others kept creating the same tables at the same time",
    ))
}

fn sql(settings: &Settings) -> String {
    LAYOUT.replace("{schema}", &settings.schema)
}

/// The user is not named: it may be another one than whoever reads this thinks of.
fn grants(settings: &Settings) -> String {
    let schema = &settings.schema;
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO …;\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.records TO …;\n\
         GRANT SELECT ON {schema}.format, {schema}.records_readable, {schema}.checkpoints TO …;\n\
         GRANT USAGE ON SEQUENCE {schema}.revisions TO …;"
    )
}

async fn check_server(session: &Session<()>) -> Result<(), Error> {
    let row = session
        .within(session.client.query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                    current_setting('server_encoding'),
                    current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'",
            &[],
        ))
        .await
        .map_err(|trouble| trouble.told(During::Asking))?;
    let (number, version, encoding, crash_safe): (i32, String, String, bool) = (
        super::rows::get(&row, 0)?,
        super::rows::get(&row, 1)?,
        super::rows::get(&row, 2)?,
        super::rows::get(&row, 3)?,
    );
    check_version(number, &version)?;
    if encoding != "UTF8" {
        return Err(Error::rejected(format!(
            "the database has the encoding {encoding}, keys need UTF8; create one with ENCODING 'UTF8' TEMPLATE template0"
        )));
    }
    if !crash_safe {
        tracing::warn!(
            "the PostgreSQL server runs with fsync or full_page_writes off: a crash of its machine loses what it acknowledged"
        );
    }
    Ok(())
}

const ABOUT: &str = "
    SELECT current_setting('server_version'),
           to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),
           current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
           current_setting('synchronous_standby_names') <> ''";

/// What the server says of itself.
pub(super) async fn about(lanes: &Lanes) -> Result<About, Error> {
    let session = lanes.lease().await?;
    let row = session
        .within(session.client.query_one(ABOUT, &[]))
        .await
        .map_err(|trouble| trouble.told(During::Asking))?;
    let get = super::rows::get::<bool>;
    let (crash_safe, waits) = (get(&row, 2)?, get(&row, 3)?);
    let mut concerns = Vec::new();
    if !crash_safe {
        concerns.push(
            "fsync or full_page_writes is off: a crash of its machine loses what it acknowledged; \
             turn both on"
                .to_owned(),
        );
    }
    Ok(About {
        server: Some(format!(
            "PostgreSQL {}",
            super::rows::get::<String>(&row, 0)?
        )),
        clock: Some(super::rows::get(&row, 1)?),
        // Standbys that a commit waits for; others may be behind, and a failover to one loses.
        replicas: Some(if waits { 2 } else { 1 }),
        servers: None,
        concerns,
    })
}

fn check_version(number: i32, version: &str) -> Result<(), Error> {
    if number < OLDEST {
        return Err(Error::rejected(format!(
            "the server is PostgreSQL {version}, which is too old; Parti needs 13 or newer"
        )));
    }
    Ok(())
}

fn check_format(format: i32, settings: &Settings) -> Result<(), Error> {
    if format > FORMAT {
        return Err(Error::rejected(format!(
            "the tables in schema {} have format {format}, this program knows up to {FORMAT}; use a newer Parti",
            settings.schema
        )));
    }
    Ok(())
}

/// The format of the tables, if they are there.
async fn format_there(session: &Session<()>, settings: &Settings) -> Result<Option<i32>, Error> {
    let sql = format!("SELECT version FROM {}.format", settings.schema);
    match session.within(session.client.query_opt(&sql, &[])).await {
        Ok(Some(row)) => super::rows::get(&row, 0).map(Some),
        Ok(None) => Ok(None),
        Err(Trouble::Failed(failure)) => {
            match failure.code().map(|code| code.code()) {
                // No such table, no such schema.
                Some("42P01" | "3F000") => Ok(None),
                Some("42501") => Err(may_not_use(settings)),
                _ => Err(fault::of(&failure, During::Asking)),
            }
        }
        Err(trouble) => Err(trouble.told(During::Asking)),
    }
}

async fn check_rights(session: &Session<()>, settings: &Settings) -> Result<(), Error> {
    let schema = &settings.schema;
    let sql = format!(
        "SELECT has_sequence_privilege('{schema}.revisions', 'USAGE')
            AND bool_and(has_table_privilege('{schema}.records', needed))
           FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed"
    );
    let row = session
        .within(session.client.query_one(&sql, &[]))
        .await
        .map_err(|trouble| trouble.told(During::Asking))?;
    if super::rows::get(&row, 0)? {
        Ok(())
    } else {
        Err(may_not_use(settings))
    }
}

fn may_not_use(settings: &Settings) -> Error {
    Error::rejected(format!(
        "this user has no permission for the tables of Parti; let their owner run:\n\n{}",
        grants(settings)
    ))
}

/// Whether someone else created or changed the same thing just then. `IF NOT EXISTS` looks first
/// and creates later: two can both see nothing.
fn is_race(failure: &tokio_postgres::Error) -> bool {
    failure.as_db_error().is_some_and(|refusal| {
        let code = refusal.code().code();
        matches!(
            code,
            "23505" | "42P06" | "42P07" | "42710" | "42723" | "40P01" | "40001"
        ) || (code == "XX000" && refusal.message().contains("concurrently"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_and_newer_formats_are_refused() {
        let settings = Settings::parse("postgres://h/db?schema=mine").expect("good");
        assert!(check_version(130_000, "13.0").is_ok());
        let error = check_version(120_022, "12.22")
            .expect_err("old")
            .to_string();
        assert!(error.contains("12.22") && error.contains("13"), "{error}");
        assert!(check_format(FORMAT, &settings).is_ok());
        let error = check_format(FORMAT + 1, &settings).expect_err("newer");
        assert!(error.to_string().contains("format 2"), "{error}");
    }

    #[test]
    fn every_name_is_in_the_schema() {
        let settings = Settings::parse("postgres://h/db?schema=mine").expect("good");
        let sql = sql(&settings);
        assert!(!sql.contains("{schema}") && sql.contains("CREATE SCHEMA IF NOT EXISTS \"mine\""));
        assert!(sql.contains(&format!("VALUES ({FORMAT})")));
    }
}
