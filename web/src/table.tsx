// A table that sorts by any column, and of which only the rows in view are in the page: it may have thousands.

import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";

export interface ColumnOf<Row> {
  key: string;
  title: string;
  /** Explanation, with the unit. */
  help: string;
  value: (row: Row) => number | string | null;
  cell: (row: Row) => ComponentChildren;
  numeric?: boolean;
  /** Left out where the page is narrow. */
  wide?: boolean;
}

interface Props<Row> {
  label: string;
  columns: ColumnOf<Row>[];
  rows: Row[];
  id: (row: Row) => string;
  first: { key: string; descending: boolean };
  /** Rows that are there for the record only. */
  dim?: (row: Row) => boolean;
  none: string;
}

/** Height of a row, in CSS pixels. The style sheet has the same. */
const ROW = 34;

/** Rows that are in the page beyond those in view, at each end. */
const MARGIN = 8;

/** Tables with no more rows than these are in the page whole. */
const WHOLE = 60;

export function Table<Row>({ label, columns, rows, id, first, dim, none }: Props<Row>) {
  const [order, setOrder] = useState(first);
  const [view, setView] = useState({ top: 0, height: 600 });
  const box = useRef<HTMLDivElement>(null);
  const sorted = useMemo(() => {
    const column = columns.find((c) => c.key === order.key) ?? columns[0];
    return column ? rows.toSorted(compare(column, order.descending)) : rows;
  }, [rows, columns, order]);

  const whole = sorted.length <= WHOLE;
  const from = whole ? 0 : Math.max(0, Math.floor(view.top / ROW) - MARGIN);
  const to = whole ? sorted.length : Math.min(sorted.length, Math.ceil((view.top + view.height) / ROW) + MARGIN);
  const shown = sorted.slice(from, to);

  const scrolled = () => {
    const at = box.current;
    if (!at || whole) return;
    if (Math.abs(at.scrollTop - view.top) > (ROW * MARGIN) / 2 || at.clientHeight !== view.height) {
      setView({ top: at.scrollTop, height: at.clientHeight });
    }
  };
  const sortBy = ({ key, numeric }: ColumnOf<Row>) =>
    setOrder(order.key === key ? { key, descending: !order.descending } : { key, descending: !!numeric });

  return (
    <div class="scroll" ref={box} onScroll={scrolled} tabIndex={0} role="region" aria-label={label}>
      <table aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.key}
                scope="col"
                class={classes(column)}
                aria-sort={order.key === column.key ? (order.descending ? "descending" : "ascending") : "none"}
              >
                <button type="button" title={column.help} onClick={() => sortBy(column)}>
                  {column.title}
                  <span aria-hidden="true">{order.key === column.key ? (order.descending ? " ▾" : " ▴") : ""}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Gap rows={from} columns={columns.length} />
          {shown.map((row, i) => (
            <tr key={id(row)} class={dim?.(row) ? "dim" : undefined} aria-rowindex={from + i + 2}>
              {columns.map((column, at) =>
                at === 0 ? (
                  <th key={column.key} scope="row">
                    {column.cell(row)}
                  </th>
                ) : (
                  <td key={column.key} class={classes(column)}>
                    {column.cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
          <Gap rows={sorted.length - to} columns={columns.length} />
        </tbody>
      </table>
      {sorted.length === 0 && <p class="soft none">{none}</p>}
    </div>
  );
}

/** The room of rows that are not in the page. */
function Gap({ rows, columns }: { rows: number; columns: number }) {
  if (rows === 0) return null;
  return (
    <tr aria-hidden="true" class="gap">
      <td colSpan={columns} style={{ height: `${rows * ROW}px` }} />
    </tr>
  );
}

const classes = <Row,>({ numeric, wide }: ColumnOf<Row>) =>
  [numeric && "numeric", wide && "wide"].filter(Boolean).join(" ");

function compare<Row>({ value }: ColumnOf<Row>, descending: boolean) {
  const sign = descending ? -1 : 1;
  return (a: Row, b: Row) => {
    const [x, y] = [value(a), value(b)];
    // What is not known stands last, whatever the order.
    if (x == null || y == null) return x == null ? (y == null ? 0 : 1) : -1;
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    return sign * String(x).localeCompare(String(y), "en", { numeric: true });
  };
}
