if [ -e /usr/local/lib/systemd/system/parda.service ]; then
    echo 'parda: the unit of an earlier `make install` in /usr/local is in force, not that of the package: run `make uninstall`' >&2
fi
systemd-sysusers parda.conf || :
systemd-tmpfiles --create parda.conf || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
if [ "$1" -eq 1 ]; then systemctl --no-reload preset parda.service || :; fi
