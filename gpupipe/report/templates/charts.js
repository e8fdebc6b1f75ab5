(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // What has a colour in the bars of lanes has it here too (report.css).
  const kept = { open: 6, close: 6, measure: 5, download: 5, decode: 1, stages: 4, encode: 2, write: 3 };
  const colours = labels => {
    const free = [1, 2, 3, 4, 5, 6].filter(n => !labels.some(label => kept[label] == n));
    return labels.map(label => css(`--c${kept[label] || free.shift() || 1}`));
  };
  const height = 210;
  let drawn = [];
  function draw() {
    drawn.forEach(plot => plot.destroy());
    drawn = charts.map((chart, n) => {
      const place = document.getElementById(`chart-${n}`);
      const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
        font: "12px system-ui, sans-serif" };
      const hues = colours(Object.keys(chart.series)), one = hues.length == 1;
      return new uPlot({
        width: place.clientWidth, height, cursor: { sync: { key: "run" } },
        scales: { x: { time: false }, y: { range: (u, low, high) => [0, chart.top || Math.max(high * 1.1, 1e-3)] } },
        axes: [{ ...axis, values: (u, values) => values.map(v => v + " s") }, { ...axis, size: 54 }],
        series: [{ label: "time", value: (u, v) => v == null ? "--" : v.toFixed(1) + " s" },
          ...Object.keys(chart.series).map((label, k) => ({
            label, stroke: hues[k], width: 2, fill: one ? hues[k] + "22" : undefined, spanGaps: true,
            points: { show: chart.times.length < 12 },
            value: (u, v) => v == null ? "--" : v.toFixed(v < 10 ? 2 : 1) + " " + chart.unit }))],
      }, [chart.times, ...Object.values(chart.series)], place);
    });
    window.gpupipePlots = drawn;
  }
  draw();
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 100); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
