systemd-sysusers parda.conf || :
systemd-tmpfiles --create parda.conf || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
if [ "$1" -eq 1 ]; then systemctl --no-reload preset parda.service || :; fi
