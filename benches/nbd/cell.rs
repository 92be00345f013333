//! The cells of the matrix.

use std::fmt;
use std::str::FromStr;

use parda_bench::Operation;

/// Whether servers use the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    PageCache,
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Unix,
    Tcp,
}

/// One load of the measurement, at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) cache: Cache,
    pub(crate) transport: Transport,
    pub(crate) operation: Operation,
    pub(crate) block: u32,
    pub(crate) depth: u32,
    pub(crate) connections: u32,
}

const OPERATIONS: [(Operation, u32); 6] = [
    (Operation::RandomRead, 4 << 10),
    (Operation::RandomWrite, 4 << 10),
    (Operation::RandomRead, 64 << 10),
    (Operation::RandomWrite, 64 << 10),
    (Operation::Read, 1 << 20),
    (Operation::Write, 1 << 20),
];

impl Cell {
    pub(crate) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for cache in [Cache::PageCache, Cache::Direct] {
            for transport in [Transport::Unix, Transport::Tcp] {
                for (operation, block) in OPERATIONS {
                    for depth in [1, 16, 64] {
                        for connections in [1, 4] {
                            let cell =
                                Self { cache, transport, operation, block, depth, connections };
                            cells.push(cell);
                        }
                    }
                }
            }
        }
        cells
    }

    /// 4 KiB on one connection over a unix socket.
    pub(crate) fn quick() -> Vec<Self> {
        let quick =
            |c: &Self| c.transport == Transport::Unix && c.block == 4 << 10 && c.connections == 1;
        Self::all().into_iter().filter(quick).collect()
    }

    pub(crate) fn load(&self) -> String {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::RandomRead => "randread",
            Operation::RandomWrite => "randwrite",
            Operation::Mixed { .. } => "mixed",
        };
        let block = if self.block < 1 << 20 {
            format!("{}k", self.block >> 10)
        } else {
            format!("{}m", self.block >> 20)
        };
        format!("{operation}/{block}")
    }

    pub(crate) fn place(&self) -> &'static str {
        match (self.cache, self.transport) {
            (Cache::PageCache, Transport::Unix) => "page-cache/unix",
            (Cache::PageCache, Transport::Tcp) => "page-cache/tcp",
            (Cache::Direct, Transport::Unix) => "direct/unix",
            (Cache::Direct, Transport::Tcp) => "direct/tcp",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, load) = (self.place(), self.load());
        write!(f, "{place}/{load}/d{}/c{}", self.depth, self.connections)
    }
}

/// Where cells are, each once, in their order.
pub(crate) fn places(cells: &[Cell]) -> Vec<(Cache, Transport)> {
    let mut places = Vec::new();
    for cell in cells {
        let place = (cell.cache, cell.transport);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The beginning of the names of cells, part by part; `*` is any part.
#[derive(Clone, Debug)]
pub(crate) struct Select(Vec<String>);

impl FromStr for Select {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let select = Self(text.split('/').map(str::to_owned).collect());
        if Cell::all().iter().any(|cell| select.takes(cell)) {
            Ok(select)
        } else {
            Err("names no cell; see `matrix cells`".to_owned())
        }
    }
}

impl Select {
    pub(crate) fn takes(&self, cell: &Cell) -> bool {
        let name = cell.to_string();
        let parts: Vec<&str> = name.split('/').collect();
        self.0.len() <= parts.len()
            && self.0.iter().zip(parts).all(|(wanted, part)| wanted == "*" || wanted == part)
    }
}
