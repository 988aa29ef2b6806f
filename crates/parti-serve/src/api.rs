//! All routes, and their description.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;
use utoipa::openapi::path::{ParameterIn, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr};
use utoipa::{Modify, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
use crate::failure::Failure;
use crate::{consuming, guard, health, looking, operating, topics, ui};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Parti",
        description = "Consumer groups over HTTP: every partition to exactly one consumer, nothing \
                       lost, nothing out of order.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    security((), ("token" = [])),
    modifiers(&Token)
)]
struct Description;

/// How callers say who they are.
struct Token;

impl Modify for Token {
    fn modify(&self, openapi: &mut OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(looking::about))
        .routes(routes!(looking::groups))
        .routes(routes!(looking::group))
        .routes(routes!(looking::events))
        .routes(routes!(looking::live))
        .routes(routes!(looking::plan))
        .routes(routes!(operating::checkpoints))
        .routes(routes!(operating::requests))
        .routes(routes!(consuming::create))
        .routes(routes!(consuming::register))
        .routes(routes!(consuming::list))
        .routes(routes!(consuming::events))
        .routes(routes!(consuming::commits))
        .routes(routes!(consuming::released))
        .routes(routes!(consuming::heartbeat))
        .routes(routes!(consuming::deregister))
        .routes(routes!(consuming::refresh))
        .routes(routes!(topics::produce))
        .routes(routes!(topics::fetch))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

/// The description of the API: OpenAPI 3.1, as JSON.
pub fn openapi() -> String {
    let (_, openapi) = described().split_for_parts();
    document(&openapi)
}

fn document(openapi: &OpenApi) -> String {
    let mut document = serde_json::to_value(openapi).unwrap_or_default();
    make_exact(&mut document);
    document.to_string()
}

/// Says exactly what the code takes and gives, where the derived description does not.
fn make_exact(node: &mut Value) {
    match node {
        Value::Object(fields) => {
            // Numbers that are never negative go up to twice as far.
            if fields.get("minimum").is_some_and(|least| *least == 0)
                && fields
                    .get("format")
                    .is_some_and(|format| *format == "int64")
            {
                fields.insert("format".into(), "uint64".into());
                fields.entry("maximum").or_insert(u64::MAX.into());
            }
            // The schema is that of one event, and a stream has many. OpenAPI 3.1 has no words for
            // that; 3.2 says `itemSchema`.
            if let Some(Value::Object(stream)) = fields.get_mut("text/event-stream")
                && let Some(event) = stream.remove("schema")
            {
                stream.insert("x-itemSchema".into(), event);
            }
            fields.values_mut().for_each(make_exact);
        }
        Value::Array(nodes) => nodes.iter_mut().for_each(make_exact),
        _ => {}
    }
}

/// What can be asked after the question mark, by path.
type Parameters = BTreeMap<String, Vec<String>>;

/// Everything that is described; what changes something takes none of them. Whether it works may be
/// asked with whatever a prober adds.
fn parameters(openapi: &OpenApi) -> Parameters {
    let asked = |item: &PathItem| {
        let described = item
            .get
            .iter()
            .flat_map(|get| get.parameters.iter().flatten());
        let named = described.filter_map(|one| match one {
            RefOr::T(one) if one.parameter_in == ParameterIn::Query => Some(one.name.clone()),
            _ => None,
        });
        named.collect()
    };
    let paths = openapi.paths.paths.iter();
    let paths = paths.filter(|(path, _)| path.starts_with("/v1/"));
    paths
        .map(|(path, item)| (path.clone(), asked(item)))
        .collect()
}

/// Refuses what nobody knows: a name that is spelled wrong would be left out of account, silently.
async fn refuse_unknown(
    State(known): State<Arc<Parameters>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    if let Some(known) = known.get(path.as_str()) {
        // What cannot be read is for whoever reads the rest.
        let asked = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
        let asked = asked.map(|Query(asked)| asked).unwrap_or_default();
        if let Some((unknown, _)) = asked.iter().find(|(name, _)| !known.contains(name)) {
            let remedy = match known.as_slice() {
                [] => "leave it out: nothing can be asked here".to_owned(),
                known => format!("leave it out: {} can be asked here", known.join(", ")),
            };
            let message = format!("there is no query parameter {unknown:?}");
            return Err(Failure::bad(message, remedy));
        }
    }
    Ok(next.run(request).await)
}

/// All routes of a service.
pub(crate) fn router(app: Arc<App>) -> Router {
    let (router, openapi) = described().split_for_parts();
    let document = document(&openapi);
    let document = get(|| async move { ([("content-type", "application/json")], document) });
    let known = Arc::new(parameters(&openapi));
    router
        .route_layer(middleware::from_fn_with_state(known, refuse_unknown))
        .route("/v1/openapi.json", document)
        .method_not_allowed_fallback(ui::wrong_method)
        .fallback(ui::file)
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}
