if [ "$1" -eq 0 ]; then systemctl --no-reload disable --now parda.service || :; fi
