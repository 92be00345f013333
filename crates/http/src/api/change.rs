//! Requests that change something.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use parda_api as api;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{HttpMethod, OpenApi};

use super::query;
use crate::answer::{Json, Refusals, Refused};
use crate::asked::{ApiRefusal, Caller, ChangeTarget, Of};
use crate::shared::Shared;

/// Reads a body of JSON. Other content types are refused, such as those of forms, which a page of any site may send.
fn body<T: DeserializeOwned>(headers: &HeaderMap, body: &Bytes) -> Result<T, Refused> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "the body must be JSON: content-type: application/json".to_owned();
        return Err(Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let wrong = |error| ApiRefusal::Invalid(format!("the body cannot be read: {error}"));
    serde_json::from_slice(body).map_err(|error| wrong(error).into())
}

/// What a path of [`SETTINGS`] or [`OVERRIDES`] names.
#[derive(Deserialize)]
pub(super) struct Named {
    volume: String,
    disk: Option<String>,
    tenant: Option<String>,
    setting: Option<String>,
}

impl Named {
    /// The part of a volume, and the setting.
    fn place(self) -> (ChangeTarget, Option<String>) {
        let Named { volume, disk, tenant, setting } = self;
        let of = disk.map(Of::Disk).or(tenant.map(Of::Tenant)).unwrap_or(Of::Law);
        (ChangeTarget { volume, of }, setting)
    }
}

/// Changes settings of a volume's law, a disk, a VM of a steered device, or a tenant on this host.
///
/// The keys are those of the configuration. The answer has the values in force, read back from the running volume.
#[utoipa::path(
    patch,
    path = "",
    params(
        ("volume" = String, Path, description = "Name of the volume."),
        ("disk" = String, Path, description = "Key of the disk, or name of the steered VM in the configuration."),
        ("tenant" = String, Path, description = "Name of the tenant.")
    ),
    request_body = api::SettingsChange,
    responses((status = 200, body = api::Changed), Refusals)
)]
pub(super) async fn set(
    State(shared): State<Shared>,
    Extension(who): Extension<Caller>,
    Path(named): Path<Named>,
    headers: HeaderMap,
    sent: Bytes,
) -> Result<impl IntoResponse, Refused> {
    let change: api::SettingsChange = body(&headers, &sent)?;
    let (place, _) = named.place();
    Ok(Json(shared.change(move |agent| agent.set(&place, &change, &who)).await??))
}

/// Gives settings of a volume's law, a disk or a tenant back to the configuration file. Either the named setting, or all.
#[utoipa::path(
    delete,
    path = "",
    params(
        ("volume" = String, Path, description = "Name of the volume."),
        ("disk" = String, Path, description = "Key of the disk, or name of the steered VM in the configuration."),
        ("tenant" = String, Path, description = "Name of the tenant."),
        ("setting" = String, Path, description = "Key of the setting.")
    ),
    responses((status = 200, body = api::Changed), (status = "4XX", body = api::Problem))
)]
pub(super) async fn reset(
    State(shared): State<Shared>,
    Extension(who): Extension<Caller>,
    Path(named): Path<Named>,
) -> Result<impl IntoResponse, Refused> {
    let (place, setting) = named.place();
    Ok(Json(shared.change(move |agent| agent.reset(&place, setting.as_deref(), &who)).await??))
}

/// Serves one more disk of a volume.
///
/// Requires a token with the role `admin`, because a disk names a file of the host. A file that cannot be opened is not added.
#[utoipa::path(
    post,
    operation_id = "add",
    path = "/api/v1/volumes/{volume}/disks",
    params(("volume" = String, Path, description = "Name of the volume.")),
    request_body = api::NewDisk,
    responses((status = 200, body = api::DiskDone), Refusals)
)]
pub(super) async fn add_disk(
    State(shared): State<Shared>,
    Extension(who): Extension<Caller>,
    Path(volume): Path<String>,
    headers: HeaderMap,
    sent: Bytes,
) -> Result<impl IntoResponse, Refused> {
    let new: api::NewDisk = body(&headers, &sent)?;
    Ok(Json(shared.change(move |agent| agent.add_disk(&volume, &new, &who)).await??))
}

/// Stops serving a disk.
///
/// Its connections close when their requests are answered. Its data stays as it is.
#[utoipa::path(
    delete,
    operation_id = "remove",
    path = "/api/v1/volumes/{volume}/disks/{disk}",
    params(
        ("volume" = String, Path, description = "Name of the volume."),
        ("disk" = String, Path, description = "Key of the disk."),
        ("keep" = Option<api::Keep>, Query, description = "How long the removal lasts. Default: `state` if a state file is configured, else `until_restart`.")
    ),
    responses((status = 200, body = api::DiskDone), Refusals)
)]
pub(super) async fn remove_disk(
    State(shared): State<Shared>,
    Extension(who): Extension<Caller>,
    Path((volume, disk)): Path<(String, String)>,
    RawQuery(text): RawQuery,
) -> Result<impl IntoResponse, Refused> {
    let keep = query::keep(text.as_deref())?;
    let place = ChangeTarget { volume, of: Of::Disk(disk) };
    Ok(Json(shared.change(move |agent| agent.remove_disk(&place, keep, &who)).await??))
}

/// Drains all disks of a volume, so that they refuse new connections, or ends that.
///
/// Connections that exist go on. A single disk is drained by its setting `drain`.
#[utoipa::path(
    post,
    path = "/api/v1/volumes/{volume}/drain",
    params(("volume" = String, Path, description = "Name of the volume.")),
    request_body = api::Drain,
    responses((status = 200, body = api::Drained), Refusals)
)]
pub(super) async fn drain(
    State(shared): State<Shared>,
    Extension(who): Extension<Caller>,
    Path(volume): Path<String>,
    headers: HeaderMap,
    sent: Bytes,
) -> Result<impl IntoResponse, Refused> {
    let drain: api::Drain = body(&headers, &sent)?;
    Ok(Json(shared.change(move |agent| agent.drain(&volume, &drain, &who)).await??))
}

/// Paths at which [`set`] answers, each with the name of what has the settings. Below each [`reset`] answers, at [`OVERRIDES`].
pub(super) const SETTINGS: [(&str, &str); 3] = [
    ("/api/v1/volumes/{volume}", "volume"),
    ("/api/v1/volumes/{volume}/disks/{disk}", "disk"),
    ("/api/v1/volumes/{volume}/tenants/{tenant}", "tenant"),
];

/// Paths of the changes of all settings and of one, each with the ending of its operation's name.
pub(super) const OVERRIDES: [(&str, &str); 2] =
    [("/overrides", ""), ("/overrides/{setting}", "_setting")];

/// Describes [`set`] and [`reset`] at each of their paths.
pub(super) struct Paths;

impl Modify for Paths {
    fn modify(&self, description: &mut OpenApi) {
        let paths = &mut description.paths;
        let Some(described) = paths.paths.remove("") else { return };
        let mut add =
            |operation: &Option<Operation>, method: HttpMethod, path: &str, id: String| {
                let Some(mut operation) = operation.clone() else { return };
                operation.operation_id = Some(id);
                let named = operation.parameters.iter().flatten();
                let named = named.filter(|named| path.contains(&format!("{{{}}}", named.name)));
                operation.parameters = Some(named.cloned().collect());
                paths.add_path_operation(path, vec![method], operation);
            };
        for (path, name) in SETTINGS {
            add(&described.patch, HttpMethod::Patch, path, format!("set_{name}"));
            for (below, end) in OVERRIDES {
                let (path, id) = (format!("{path}{below}"), format!("reset_{name}{end}"));
                add(&described.delete, HttpMethod::Delete, &path, id);
            }
        }
    }
}
