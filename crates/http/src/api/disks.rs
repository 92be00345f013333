//! Requests that add, remove and drain disks.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use parda_api as api;

use super::change::body;
use super::query;
use crate::answer::{Json, Refusals, Refused};
use crate::asked::{Of, Place, Who};
use crate::shared::Shared;

/// Serves one more disk of a volume.
///
/// It takes a token with the role `admin`: a disk names a file of the host. One that cannot be opened is not added.
#[utoipa::path(
    post,
    path = "/api/v1/volumes/{volume}/disks",
    params(("volume" = String, Path, description = "Name of the volume.")),
    request_body = api::NewDisk,
    responses((status = 200, body = api::DiskDone), Refusals)
)]
pub(super) async fn add(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
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
    path = "/api/v1/volumes/{volume}/disks/{disk}",
    params(
        ("volume" = String, Path, description = "Name of the volume."),
        ("disk" = String, Path, description = "Key of the disk."),
        ("keep" = Option<api::Keep>, Query, description = "How long the removal lasts. Default: `state` if a state file is configured, else `until_restart`.")
    ),
    responses((status = 200, body = api::DiskDone), Refusals)
)]
pub(super) async fn remove(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    Path((volume, disk)): Path<(String, String)>,
    RawQuery(text): RawQuery,
) -> Result<impl IntoResponse, Refused> {
    let keep = query::keep(text.as_deref())?;
    let place = Place { volume, of: Of::Disk(disk) };
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
    Extension(who): Extension<Who>,
    Path(volume): Path<String>,
    headers: HeaderMap,
    sent: Bytes,
) -> Result<impl IntoResponse, Refused> {
    let drain: api::Drain = body(&headers, &sent)?;
    Ok(Json(shared.change(move |agent| agent.drain(&volume, &drain, &who)).await??))
}
