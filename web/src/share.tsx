// What a VM or a host has of its share, on a scale whose middle is 100 %.

import { isFair, percent } from "./sentence";

const WIDTH = 64;
const HEIGHT = 14;

interface Props {
  /** 1 is the share. */
  of_share: number;
  /** IOs that were counted. */
  a_second: number | null;
}

export function OfShare({ of_share, a_second }: Props) {
  const at = (WIDTH / 2) * Math.min(2, of_share);
  return (
    <span class={`share ${isFair(of_share, a_second) ? "good" : "bad"}`}>
      <svg width={WIDTH} height={HEIGHT} viewBox={`-5 0 ${WIDTH + 10} ${HEIGHT}`} aria-hidden="true">
        <path class="scale" d={`M0 ${HEIGHT / 2}H${WIDTH}`} />
        <path class="mark" d={`M${WIDTH / 2} 0V${HEIGHT}`} />
        <circle cx={at} cy={HEIGHT / 2} r="4" />
      </svg>
      <span class="percent">{percent(of_share)}</span>
    </span>
  );
}
