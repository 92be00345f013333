//! Requests that change something.

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use parda_api as api;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::Modify;
use utoipa::openapi::{HttpMethod, OpenApi, PathItem};

use crate::answer::{Json, Refused};
use crate::asked::{Change, Of, Place, Refusal, Who};
use crate::shared::Shared;

/// The largest body of a request, in bytes.
const LARGEST: usize = 64 << 10;

/// Reads a body of JSON. Other content types are refused, such as those of forms, which a page of any site may send.
pub(super) async fn body<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Refused> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "the body must be JSON: content-type: application/json".to_owned();
        return Err(Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let bytes = to_bytes(body, LARGEST).await.map_err(|_| {
        let message = format!("the body is larger than {} KiB, or was not sent", LARGEST >> 10);
        Refused(StatusCode::PAYLOAD_TOO_LARGE, message)
    })?;
    let wrong = |error| Refusal::Invalid(format!("the body cannot be read: {error}"));
    serde_json::from_slice(&bytes).map_err(|error| wrong(error).into())
}

async fn set(
    shared: Shared,
    who: Who,
    place: Place,
    keep: Option<api::Keep>,
    settings: Map<String, Value>,
) -> Result<Json<api::Changed>, Refused> {
    let change = Change { place, keep, settings };
    Ok(Json(shared.change(move |agent| agent.set(&change, &who)).await??))
}

/// Changes settings of a volume's law.
///
/// The keys are those of `[volume.control]`. The answer has the values in force, read back from the running volume.
#[utoipa::path(
    patch,
    path = "/api/v1/volumes/{volume}",
    params(("volume" = String, Path, description = "Name of the volume.")),
    request_body = api::VolumeChange,
    responses(
        (status = 200, body = api::Changed),
        (status = "4XX", body = api::Problem),
        (status = 500, body = api::Problem, description = "The change cannot be kept: a full disk, for one.")
    )
)]
pub(super) async fn set_volume(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path(volume): Path<String>,
    headers: HeaderMap,
    sent: Body,
) -> Result<impl IntoResponse, Refused> {
    let api::VolumeChange { keep, settings } = body(&headers, sent).await?;
    set(shared, who, Place { volume, of: Of::Law }, keep, settings).await
}

/// Changes settings of a disk, or of a VM of a steered device.
#[utoipa::path(
    patch,
    path = "/api/v1/volumes/{volume}/disks/{disk}",
    params(
        ("volume" = String, Path, description = "Name of the volume."),
        ("disk" = String, Path, description = "Key of the disk, or name of the steered VM in the configuration.")
    ),
    request_body = api::DiskChange,
    responses(
        (status = 200, body = api::Changed),
        (status = "4XX", body = api::Problem),
        (status = 500, body = api::Problem, description = "The change cannot be kept: a full disk, for one.")
    )
)]
pub(super) async fn set_disk(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path((volume, disk)): Path<(String, String)>,
    headers: HeaderMap,
    sent: Body,
) -> Result<impl IntoResponse, Refused> {
    let api::DiskChange { keep, settings } = body(&headers, sent).await?;
    set(shared, who, Place { volume, of: Of::Disk(disk) }, keep, settings).await
}

/// Changes settings of a tenant on this host.
#[utoipa::path(
    patch,
    path = "/api/v1/volumes/{volume}/tenants/{tenant}",
    params(
        ("volume" = String, Path, description = "Name of the volume."),
        ("tenant" = String, Path, description = "Name of the tenant.")
    ),
    request_body = api::TenantChange,
    responses(
        (status = 200, body = api::Changed),
        (status = "4XX", body = api::Problem),
        (status = 500, body = api::Problem, description = "The change cannot be kept: a full disk, for one.")
    )
)]
pub(super) async fn set_tenant(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path((volume, tenant)): Path<(String, String)>,
    headers: HeaderMap,
    sent: Body,
) -> Result<impl IntoResponse, Refused> {
    let api::TenantChange { keep, settings } = body(&headers, sent).await?;
    set(shared, who, Place { volume, of: Of::Tenant(tenant) }, keep, settings).await
}

/// What a path of [`OVERRIDES`] names.
#[derive(Deserialize)]
pub(super) struct Overridden {
    volume: String,
    disk: Option<String>,
    tenant: Option<String>,
    setting: Option<String>,
}

/// Gives settings of a volume's law, a disk or a tenant back to the configuration file: the one that is named, or all.
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
    Extension(who): Extension<Who>,
    Path(Overridden { volume, disk, tenant, setting }): Path<Overridden>,
) -> Result<impl IntoResponse, Refused> {
    let of = disk.map(Of::Disk).or(tenant.map(Of::Tenant)).unwrap_or(Of::Law);
    let place = Place { volume, of };
    Ok(Json(shared.change(move |agent| agent.reset(&place, setting.as_deref(), &who)).await??))
}

/// Paths at which [`reset`] answers, each with the name of its operation.
pub(super) const OVERRIDES: [(&str, &str); 6] = [
    ("/api/v1/volumes/{volume}/overrides", "reset_volume"),
    ("/api/v1/volumes/{volume}/overrides/{setting}", "reset_volume_setting"),
    ("/api/v1/volumes/{volume}/disks/{disk}/overrides", "reset_disk"),
    ("/api/v1/volumes/{volume}/disks/{disk}/overrides/{setting}", "reset_disk_setting"),
    ("/api/v1/volumes/{volume}/tenants/{tenant}/overrides", "reset_tenant"),
    ("/api/v1/volumes/{volume}/tenants/{tenant}/overrides/{setting}", "reset_tenant_setting"),
];

/// Describes [`reset`] at each of its paths.
pub(super) struct Overrides;

impl Modify for Overrides {
    fn modify(&self, description: &mut OpenApi) {
        let paths = &mut description.paths.paths;
        let Some(operation) = paths.remove("").and_then(|described| described.delete) else {
            return;
        };
        for (path, id) in OVERRIDES {
            let mut operation = operation.clone();
            operation.operation_id = Some(id.to_owned());
            let named = operation.parameters.iter().flatten();
            let named = named.filter(|named| path.contains(&format!("{{{}}}", named.name)));
            operation.parameters = Some(named.cloned().collect());
            paths.insert(path.to_owned(), PathItem::new(HttpMethod::Delete, operation));
        }
    }
}
