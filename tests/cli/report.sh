#!/bin/sh
# Checks report.html of a short run in a real browser, at the width of a phone and of a desktop, light and dark: nothing is
# wider than the page, text is large enough and contrasts with its background, headings are in order, pictures have names,
# nothing is loaded, the console is silent, and the page looks the same without its script. Skipped (77) without a browser,
# which is DS_BROWSER or a Chromium by one of its usual names.
# usage: report.sh LIBDS
. "$(dirname "$0")/begin.sh"

browser=${DS_BROWSER:-}
for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
  [ -n "$browser" ] || browser=$(command -v $name || true)
done
[ -n "$browser" ] || {
  echo "skipped: no browser (chromium or google-chrome in PATH, or DS_BROWSER)"
  exit 77
}

# A run whose report has every part, with names and text that would break a page that does not escape them.
text='</script><script>console.error("not escaped")</script> "&amp;'"'"'<b onclick=x>'
i=0
while [ $i -lt 300 ]; do
  echo "line $i $text $((i * 7919 % 1000))"
  i=$((i + 1))
done > 'text <i>&"'\''.txt'
sed '1s/{/{"comms_logger": {"enabled": true}, "memory_budget": {"device": "64MiB"},/' "$here/tiny.json" > config.json
folder='run <img src=x onerror=console.error(7)>&"'
"$libds" launch -n 2 "$libds" train --config config.json --data "$work/text <i>&\"'.txt" --steps 12 --quiet \
  --dir "$folder" > out || fail "$(cat out)"
cp "$folder/report.html" report.html

# browse WIDTH HEIGHT ARGUMENT...
browse() {
  size="--window-size=$1,$2"
  shift 2
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
    --user-data-dir="$work/profile" --enable-logging=stderr "$size" "$@"
}

# frame.py PAGE WIDTH SCRIPT...: prints the page followed by the scripts, in a frame of the given width, because a window may
# not become as narrow as a phone. The probe writes its findings below the frame.
cat > frame.py <<'END'
import html, sys
page = open(sys.argv[1], encoding="utf-8").read()
probe = "<script>" + "".join(open(name, encoding="utf-8").read() for name in sys.argv[3:]) + "</script>"
assert page.count("</body>") == 1
inside = html.escape(page.replace("</body>", probe + "</body>"))
print(f'<!doctype html><body><iframe style="border:0" width="{sys.argv[2]}" height="900" srcdoc="{inside}"></iframe>')
END

# findings PAGE WIDTH ARGUMENT...: prints the findings of the probe and the console about the page.
findings() {
  python3 frame.py "$1" "$2" "$here/../support/contrast.js" "$here/report_probe.js" > framed.html
  shift 2
  browse 1400 1000 "$@" --dump-dom "file://$work/framed.html" > dom 2> console || fail "the browser fails: $(tail -n 5 console)"
  sed -n '/<pre id="findings">/,/<\/pre>/p' dom | sed -e 's|.*<pre id="findings">||' -e 's|</pre>.*||'
  grep CONSOLE console || true
}

# A page with a fault of each kind shows that the probe finds faults.
cat > faults <<'END'
<h4>out of order</h4><p style="width:3000px">wide</p><p style="font-size:9px">small</p>
<p style="color:#888;background:#999">pale</p><svg role="img"></svg><script>console.error("heard")</script>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
END
sed '/<\/main>/r faults' report.html > faulty.html
findings faulty.html 1280 > found
for fault in 'wider than' 'heading' '9px' 'contrast' 'no name' 'heard' 'Content Security Policy'; do
  grep -q "$fault" found || fail "the probe does not see: $fault. It sees: $(cat found)"
done

sed '/^<script>/,/^<\/script>/d' report.html > plain.html
! grep -q '<script>' plain.html || fail "the script stays"
for width in 390 1280; do
  for scheme in light dark; do
    dark=$([ $scheme = light ] || echo --blink-settings=preferredColorScheme=0)
    findings report.html $width $dark > found
    [ "$(cat found)" = "width $width, $scheme" ] || fail "at $width, $scheme: $(cat found)"
    browse $width 3000 $dark --screenshot="$work/$width-$scheme.png" "file://$work/report.html" 2> console || fail "$(tail -n 5 console)"
  done
  browse $width 3000 --screenshot="$work/$width-plain.png" "file://$work/plain.html" 2> console || fail "$(tail -n 5 console)"
  cmp $width-light.png $width-plain.png || fail "the page needs its script at $width"
done

python3 - <<'END' || fail "screenshots"
import os, struct
for width in (390, 1280):
    for scheme in ("light", "dark"):
        data = open(f"{width}-{scheme}.png", "rb").read()
        assert data[:8] == b"\x89PNG\r\n\x1a\n", (width, scheme)
        assert struct.unpack(">II", data[16:24]) == (width, 3000), struct.unpack(">II", data[16:24])
        assert len(data) > 20000, (width, scheme, len(data))
    assert open(f"{width}-light.png", "rb").read() != open(f"{width}-dark.png", "rb").read(), "no dark scheme"
END
if [ -n "${DS_SCREENSHOTS:-}" ]; then cp ./*.png "$DS_SCREENSHOTS/"; fi
